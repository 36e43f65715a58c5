//! Text in columns, separated by commas, semicolons or tabs: fields, quotes, and columns by their
//! heading.

/// Splits a line into fields; removes double quotes around a field, and undoubles those within.
pub(crate) fn fields(line: &str) -> Vec<String> {
    fields_by(line, ',')
}

/// As [`fields`], with the separator that the line has most of.
pub(crate) fn fields_of_any(line: &str) -> Vec<String> {
    fields_by(line, separator_of(line))
}

/// Separator that occurs most often outside quotes: comma, semicolon or tab.
pub(crate) fn separator_of(line: &str) -> char {
    let mut counts = [(',', 0), (';', 0), ('\t', 0)];
    let mut quoted = false;
    for letter in line.chars() {
        quoted ^= letter == '"';
        if let Some((_, count)) = counts.iter_mut().find(|(separator, _)| *separator == letter && !quoted) {
            *count += 1;
        }
    }
    // A decimal comma in each field still leaves one comma fewer than fields.
    if counts[1].1 > 0 && counts[1].1 + 1 >= counts[0].1 {
        return ';';
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map_or(',', |(separator, _)| separator)
}

/// Splits a line into fields at a separator.
pub(crate) fn fields_by(line: &str, separator: char) -> Vec<String> {
    let (mut fields, mut quoted) = (vec![String::new()], false);
    let mut rest = line.trim_end_matches(['\r', '\n']).chars().peekable();
    while let Some(character) = rest.next() {
        let last = fields.last_mut().expect("there is always one");
        match character {
            '"' if quoted && rest.peek() == Some(&'"') => {
                rest.next();
                last.push('"');
            }
            '"' => quoted = !quoted,
            other if other == separator && !quoted => fields.push(String::new()),
            other => last.push(other),
        }
    }
    fields
}

/// Column headings by position.
pub(crate) struct Headings(Vec<String>);

impl Headings {
    /// Parses the first line.
    pub(crate) fn of(line: &str) -> Self {
        Self::of_fields(fields(line))
    }

    /// From the fields of the first line.
    pub(crate) fn of_fields(fields: Vec<String>) -> Self {
        Self(fields.into_iter().map(|name| name.trim().to_lowercase()).collect())
    }

    /// The field under a heading; `None` if the column is missing or the field empty.
    pub(crate) fn get<'a>(&self, row: &'a [String], name: &str) -> Option<&'a str> {
        let at = self.0.iter().position(|heading| heading == name)?;
        row.get(at).map(|field| field.trim()).filter(|field| !field.is_empty())
    }

    /// True if there is a column of that name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|heading| heading == name)
    }

    /// All headings.
    pub(crate) fn names(&self) -> &[String] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_hold_commas() {
        assert_eq!(fields("a,\"b,c\",,\"d\"\"e\"\r\n"), ["a", "b,c", "", "d\"e"]);
        assert_eq!(fields_of_any("a;\"b;c\";1,5;2,5\n"), ["a", "b;c", "1,5", "2,5"]);
        assert_eq!(fields_of_any("a\t1,5\t2"), ["a", "1,5", "2"]);
        assert_eq!(fields_of_any("\"a;b\",1"), ["a;b", "1"]);
        let headings = Headings::of("Name, Value ");
        let row = fields("x, 3 ");
        assert_eq!(headings.get(&row, "value"), Some("3"));
        assert_eq!(headings.get(&row[..1], "value"), None);
        assert!(headings.has("name") && !headings.has("other") && headings.names().len() == 2);
    }
}
