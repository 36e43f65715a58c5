//! Results of other tools, read into the laboratory's own form. Pure: text in, a [`RunRecord`] out.
//!
//! The format is recognised from the text itself, never from the file's name. Figures keep the
//! tool's meaning; what differs (a unit, a statistic) is converted and noted in the record.
//! Expects foreign files that are not what they say: every reader refuses what it does not know,
//! with the line where it stopped.

mod bonnie;
mod bonnie_plus;
mod crystaldiskmark;
mod diskspd;
mod fio;
mod iometer;
mod postmark;
pub(crate) mod table;
mod tidy;

pub(crate) use bonnie::TESTS as BONNIE_TESTS;

use crate::records::record::RunRecord;

/// Maximum size of a file: no tool writes more for one run.
pub const MAX_IMPORT_BYTES: u64 = 32 << 20;
/// Values, elements and fields in a file: each takes many times the memory of its text.
const MAX_VALUES: usize = 1_000_000;
/// Figures of one run.
const MAX_MEASUREMENTS: usize = 100_000;

/// Reason why a file cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// None of the formats.
    #[error("this is none of the formats known: {}", FORMATS.join(", "))]
    Unknown,
    /// More than one run has.
    #[error("it has more than {most} {what}, and one run has fewer")]
    TooMuch {
        /// The limit.
        most: usize,
        /// The kind of thing.
        what: &'static str,
    },
    /// It looks like a format and is not.
    #[error("this looks like {format}, but {why}")]
    Broken {
        /// The format.
        format: &'static str,
        /// Description of the error, with the line if it is known.
        why: String,
    },
}

/// The formats, in words.
pub(crate) const FORMATS: [&str; 8] = [
    "fio JSON",
    "CrystalDiskMark text",
    "diskspd XML",
    "IOMeter CSV",
    "bonnie's line",
    "bonnie++ CSV",
    "PostMark's report",
    "CSV in the form of studies/",
];

fn broken(format: &'static str, why: impl Into<String>) -> ImportError {
    ImportError::Broken { format, why: why.into() }
}

/// Reads the output of another tool. `run`, `date` and, if the file does not name it, `target` are
/// left empty.
pub fn import(bytes: &[u8]) -> Result<RunRecord, ImportError> {
    // Before anything is made of it.
    if bytes.iter().filter(|byte| matches!(byte, b',' | b'<' | b'[' | b'{')).count() > MAX_VALUES {
        return Err(ImportError::TooMuch { most: MAX_VALUES, what: "values" });
    }
    let text = decode(bytes);
    let text = text.trim_start_matches('\u{feff}');
    let mut record = match text.trim_start() {
        json if json.starts_with('{') || json.starts_with("fio:") => fio::read(json)?,
        xml if xml.starts_with('<') => diskspd::read(xml)?,
        _ if text.contains("CrystalDiskMark") => crystaldiskmark::read(text)?,
        _ if iometer::fits(text) => iometer::read(text)?,
        _ if postmark::fits(text) => postmark::read(text)?,
        _ if bonnie::fits(text) => bonnie::read(text)?,
        _ if bonnie_plus::fits(text) => bonnie_plus::read(text)?,
        _ if tidy::fits(text) => tidy::read(text)?,
        _ => return Err(ImportError::Unknown),
    };
    if record.measurements.len() > MAX_MEASUREMENTS {
        return Err(too_many_figures());
    }
    keep_to_lines(&mut record);
    Ok(RunRecord { finished: true, ..record })
}

fn too_many_figures() -> ImportError {
    ImportError::TooMuch { most: MAX_MEASUREMENTS, what: "figures" }
}

/// Takes out of every text what would end a line or a row where it is shown.
fn keep_to_lines(record: &mut RunRecord) {
    let clean = |text: &mut String| {
        if text.contains(char::is_control) {
            *text = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
        }
    };
    [&mut record.target, &mut record.profile, &mut record.tool, &mut record.date].into_iter().for_each(clean);
    record.notes.iter_mut().for_each(clean);
    record.environment.values_mut().for_each(clean);
    record.measurements.iter_mut().for_each(|figure| clean(&mut figure.name));
}

/// As text: UTF-8, or UTF-16 with its mark, as Windows tools write it.
fn decode(bytes: &[u8]) -> String {
    let wide = |rest: &[u8], join: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = rest.chunks_exact(2).map(|pair| join([pair[0], pair[1]])).collect();
        String::from_utf16_lossy(&units)
    };
    match bytes {
        [0xff, 0xfe, rest @ ..] => wide(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => wide(rest, u16::from_be_bytes),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// A figure that can be stored: finite and not negative.
fn number(text: &str) -> Option<f64> {
    let plain = text.trim().trim_end_matches('%').replace(',', "");
    plain.parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_import_files_are_refused() {
        for (bytes, part) in [
            (&b""[..], "none of the formats"),
            (b"hello", "none of the formats"),
            (b"{}", "fio JSON"),
            (b"{\"jobs\": 3}", "fio JSON"),
            (b"{\"jobs\": [", "fio JSON"),
            (b"<html></html>", "diskspd XML"),
            (b"<Results><Profile>", "diskspd XML"),
            (b"CrystalDiskMark 7.0.0 x64 (C) 2007-2019", "CrystalDiskMark"),
            (b"\xff\xfe\x00", "none of the formats"),
            (b"\x00\x01\x02\x03", "none of the formats"),
        ] {
            let error = import(bytes).expect_err("refused").to_string();
            assert!(error.contains(part), "{bytes:?}: {error}");
        }
    }

    #[test]
    fn an_imported_name_makes_no_row_of_its_own() {
        let text =
            r#"{"fio version": "fio\n-3", "jobs": [{"jobname": "a\nb 1 2 3\r", "read": {"bw": 100}}]}"#;
        let record = import(text.as_bytes()).expect("fio's");
        assert_eq!((&*record.tool, &*record.measurements[0].name), ("fio -3", "a b 1 2 3  read"));
    }

    #[test]
    fn memory_hungry_files_are_refused_first() {
        let refused = |text: String| import(text.as_bytes()).expect_err("refused").to_string();
        let many = |part: &str| part.repeat(MAX_VALUES + 1);
        for text in [format!("{{\"jobs\":[{}0]}}", many("0,")), format!("<Results>{}", many("<a/>"))] {
            assert!(refused(text).contains("more than 1000000 values"));
        }
        let rows: String = (0..=MAX_MEASUREMENTS).map(|row| format!("{row},1\n")).collect();
        assert!(refused(format!("name,mb_per_s\n{rows}")).contains("more than 100000 figures"));
    }

    #[test]
    fn windows_text_is_decoded() {
        let wide: Vec<u8> =
            [0xff, 0xfe].into_iter().chain("añ".encode_utf16().flat_map(u16::to_le_bytes)).collect();
        assert_eq!(decode(&wide), "añ");
        assert_eq!(number("1,234.5"), Some(1234.5));
        assert_eq!(number("98%"), Some(98.0));
        assert_eq!((number("-1"), number("inf"), number("+++")), (None, None, None));
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(400))]
        #[test]
        fn no_input_makes_import_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300), start in 0usize..9) {
            let starts = ["", "{\"jobs\":[", "<Results>", "CrystalDiskMark", "'Results\n", "seconds total\n",
                "-Per Char-\n", "1.98,1.98,", "study,table,value\n"];
            let mut all = starts[start].as_bytes().to_vec();
            all.extend(bytes);
            let _ = import(&all);
        }
    }
}
