//! Tables of several systems with the same rows as one: our figure stands once, with each system's
//! beside it. Pure.

use super::{StudyResult, StudyRow, StudyTable};

/// A table as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownTable<'a> {
    /// Published tables, each with its system.
    pub systems: Vec<&'a str>,
    /// Its rows.
    pub rows: Vec<ShownRow<'a>>,
}

/// A row as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownRow<'a> {
    /// Configuration and test.
    pub name: String,
    /// The row of the first system that has it, with our figure.
    pub ours: &'a StudyRow,
    /// The published row of each system.
    pub published: Vec<Option<&'a StudyRow>>,
}

impl ShownTable<'_> {
    /// Title of the table.
    pub fn title(&self) -> String {
        self.systems.join("; ")
    }

    /// True if any system has published figures.
    pub fn is_published(&self) -> bool {
        self.rows.iter().any(|row| row.published.iter().flatten().any(|one| one.published.is_some()))
    }
}

/// All tables of a result, those with the same rows joined.
pub fn shown_tables(result: &StudyResult) -> Vec<ShownTable<'_>> {
    let mut groups: Vec<Vec<&StudyTable>> = Vec::new();
    for table in &result.tables {
        match groups.iter_mut().find(|group| can_join(group[0], table)) {
            Some(group) => group.push(table),
            None => groups.push(vec![table]),
        }
    }
    groups.iter().map(|group| joined(group)).collect()
}

/// Tables join if neither has a row twice, and one has all rows of the other.
fn can_join(one: &StudyTable, other: &StudyTable) -> bool {
    let is_unique = |table: &StudyTable| {
        let rows = &table.rows;
        rows.iter()
            .all(|row| !row.key.is_empty() && rows.iter().filter(|other| is_same(row, other)).count() == 1)
    };
    let holds = |outer: &StudyTable, inner: &StudyTable| {
        inner.rows.iter().all(|row| outer.rows.iter().any(|other| is_same(row, other)))
    };
    is_unique(one) && is_unique(other) && (holds(one, other) || holds(other, one))
}

fn is_same(one: &StudyRow, other: &StudyRow) -> bool {
    one.key == other.key && one.metric == other.metric
}

fn joined<'a>(group: &[&'a StudyTable]) -> ShownTable<'a> {
    let mut all: Vec<&'a StudyRow> = Vec::new();
    let is_alone = group.len() == 1;
    for row in group.iter().flat_map(|table| &table.rows) {
        if is_alone || !all.iter().any(|known| is_same(known, row)) {
            all.push(row);
        }
    }
    let of_row = |ours: &'a StudyRow| {
        let of_table = |table: &&'a StudyTable| match is_alone {
            true => Some(ours),
            false => table.rows.iter().find(|row| is_same(ours, row)),
        };
        let published: Vec<Option<&StudyRow>> = group.iter().map(of_table).collect();
        let is_one_name = published.iter().flatten().all(|row| row.row == ours.row);
        // Systems name the same configuration differently.
        let name = if is_one_name { ours.row.clone() } else { ours.key.replace('/', " ") };
        ShownRow { name, ours, published }
    };
    ShownTable {
        systems: group.iter().map(|table| table.table.as_str()).collect(),
        rows: all.into_iter().map(of_row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: &str, published: f64) -> StudyRow {
        StudyRow {
            row: key.replace('/', " "),
            metric: "MB/s".into(),
            measured: Some(5.0),
            ci95: None,
            published: Some(published),
            percent_of_single: None,
            published_percent_of_single: None,
            key: key.into(),
        }
    }

    fn table(name: &str, rows: Vec<StudyRow>) -> StudyTable {
        StudyTable { table: name.into(), rows }
    }

    #[test]
    fn our_figure_stands_once_beside_all_systems() {
        let result = StudyResult {
            study: "004".into(),
            pace: None,
            tables: vec![
                table("one", vec![row("a/r", 1.0), row("b/r", 2.0)]),
                table("other", vec![row("a/r", 3.0)]),
                table("single", vec![row("s/r", 4.0)]),
                table("twice", vec![row("a/r", 5.0), row("a/r", 6.0)]),
            ],
            findings: Vec::new(),
            notes: Vec::new(),
        };
        let shown = shown_tables(&result);
        let titles: Vec<String> = shown.iter().map(ShownTable::title).collect();
        assert_eq!(titles, ["one; other", "single", "twice"]);
        let figures = |at: usize| -> Vec<Option<f64>> {
            shown[0].rows[at].published.iter().map(|row| row.and_then(|row| row.published)).collect()
        };
        assert_eq!((figures(0), figures(1)), (vec![Some(1.0), Some(3.0)], vec![Some(2.0), None]));
        assert_eq!(shown[2].rows.len(), 2, "a table that has a row twice stays as printed");
    }
}
