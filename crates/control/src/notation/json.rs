//! Bounds on JSON that came from outside, found before it is parsed: a short text can hold millions
//! of values, which take a hundred times its memory.
//!
//! Expected faults: anything. What is no JSON is for the parser to refuse.

/// Refuses a text with more values, or deeper, than any request has.
pub fn check_json(text: &[u8], most_values: usize, most_depth: usize) -> Result<(), String> {
    let (mut values, mut depth) = (1usize, 0usize);
    let (mut is_string, mut is_escaped) = (false, false);
    for byte in text {
        if is_string {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' => is_escaped = true,
                b'"' => is_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => is_string = true,
            b',' => values += 1,
            b'[' | b'{' => {
                values += 1;
                depth += 1;
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > most_depth {
            return Err(format!("it is nested deeper than {most_depth}"));
        }
        if values > most_values {
            return Err(format!("it has more than {most_values} values"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_depth_are_counted_outside_strings() {
        let check = |text: &str| check_json(text.as_bytes(), 6, 3);
        assert_eq!(check(r#"{"a": [1, 2, 3], "b": 4}"#), Ok(()));
        assert_eq!(check(r#"["a,,,,,,,,[[[[[[", "\",,,,,,[[[[[", "\\"]"#), Ok(()));
        assert!(check("[1,2,3,4,5,6,7]").is_err_and(|why| why.contains("more than 6 values")));
        assert!(check("[[[[").is_err_and(|why| why.contains("deeper than 3")));
        assert_eq!(check("]]]]]["), Ok(()), "what is no JSON is for the parser");
        assert!(check(&format!("[{}]", r#""","#.repeat(5_000_000))).is_err());
    }
}
