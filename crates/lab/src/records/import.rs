//! Results of other tools, read into the laboratory's own form. Pure: text in, a [`RunRecord`] out.
//!
//! The format is told from the text itself, never from the file's name. Figures keep the tool's
//! meaning; what differs (a unit, a statistic) is converted and noted in the record. Expects
//! foreign files that are not what they say: every reader refuses what it does not know, with the
//! line where it stopped.

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

/// Files above this are not read: no tool writes so much for one run.
pub const MAX_IMPORT_BYTES: u64 = 256 << 20;

/// What a file cannot be imported for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// None of the formats.
    #[error("this is none of the formats known: {}", FORMATS.join(", "))]
    Unknown,
    /// It looks like a format and is not.
    #[error("this looks like {format}, but {why}")]
    Broken {
        /// The format.
        format: &'static str,
        /// What is wrong, with the line where it can be told.
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

/// Reads the output of another tool. `run`, `target` (if the file does not tell) and `date` are
/// left empty.
pub fn import(bytes: &[u8]) -> Result<RunRecord, ImportError> {
    let text = decode(bytes);
    let text = text.trim_start_matches('\u{feff}');
    let record = match text.trim_start() {
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
    Ok(RunRecord { finished: true, ..record })
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
