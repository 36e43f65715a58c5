//! Comma-separated text: fields, quotes, and columns by their heading.

/// Splits a line into fields; removes double quotes around a field, and undoubles those within.
pub(crate) fn fields(line: &str) -> Vec<String> {
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
            ',' if !quoted => fields.push(String::new()),
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
        Self(fields(line).into_iter().map(|name| name.trim().to_lowercase()).collect())
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
        let headings = Headings::of("Name, Value ");
        let row = fields("x, 3 ");
        assert_eq!(headings.get(&row, "value"), Some("3"));
        assert_eq!(headings.get(&row[..1], "value"), None);
        assert!(headings.has("name") && !headings.has("other") && headings.names().len() == 2);
    }
}
