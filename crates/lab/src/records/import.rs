//! Results of other tools, read into the laboratory's own form. Pure: bytes in, [`RunRecord`]s out.
//!
//! There is one reader for each tool. It finds all records of its tool in a text, whatever stands
//! around them, or reports the missing part of one. Figures keep the tool's meaning; a different
//! unit or statistic is converted and noted in the record. Expects foreign files that are not what
//! they say: every reader refuses what it does not know, with the line where it stopped.

mod bonnie;
mod bonnie_plus;
mod crystaldiskmark;
mod diskspd;
mod fio;
mod iometer;
mod kit;
mod postmark;
mod sysbench;
pub(crate) mod table;
mod tidy;

pub(crate) use bonnie::TESTS as BONNIE_TESTS;

use kit::text::{complaints, decode};

use crate::records::record::RunRecord;

/// Maximum size of a file: no tool writes more for one run.
pub const MAX_IMPORT_BYTES: u64 = 32 << 20;
/// Values, elements and fields in a file: each takes many times the memory of its text.
const MAX_VALUES: usize = 1_000_000;
/// Lines in a file: each can be a run of a figure.
const MAX_LINES: usize = 2_000_000;
/// Letters of a name or a note, and notes of a run.
const MAX_TEXT: usize = 500;
const MAX_NOTES: usize = 50;
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
pub(crate) const FORMATS: [&str; 9] = [
    "fio's JSON, terse lines or text",
    "CrystalDiskMark and KDiskMark text",
    "diskspd XML or text",
    "IOMeter CSV",
    "bonnie's lines",
    "bonnie++ CSV",
    "sysbench's fileio report",
    "PostMark's report",
    "CSV in the form of studies/",
];

/// Reads all records of one tool in a text; `None` if there are none.
type Reader = fn(&str) -> Result<Option<RunRecord>, ImportError>;

const READERS: [Reader; 8] = [
    fio::read,
    diskspd::read,
    crystaldiskmark::read,
    iometer::read,
    postmark::read,
    sysbench::read,
    bonnie::read,
    bonnie_plus::read,
];

fn broken(format: &'static str, why: impl Into<String>) -> ImportError {
    // A line that is quoted may be the whole file.
    ImportError::Broken { format, why: why.into().chars().take(MAX_TEXT).collect() }
}

/// Reads the output of other tools: a run for each tool that the file has results of. `run`, and
/// what a file does not name of `date` and `target`, are left empty.
///
/// # Errors
/// The file has no results, or those that it has cannot be read.
pub fn import(bytes: &[u8]) -> Result<Vec<RunRecord>, ImportError> {
    // Before anything is made of it.
    if bytes.iter().filter(|byte| matches!(byte, b',' | b';' | b'<' | b'[' | b'{' | b'|')).count()
        > MAX_VALUES
    {
        return Err(ImportError::TooMuch { most: MAX_VALUES, what: "values" });
    }
    if bytes.iter().filter(|byte| **byte == b'\n').count() > MAX_LINES {
        return Err(ImportError::TooMuch { most: MAX_LINES, what: "lines" });
    }
    let text = decode(bytes);
    let (mut runs, mut errors) = (Vec::new(), Vec::new());
    for reader in READERS {
        match reader(&text) {
            Ok(Some(run)) => runs.push(run),
            Ok(None) => {}
            Err(error) => errors.push(error),
        }
    }
    // A table has no mark of its own: other tools' output can look like one.
    if runs.is_empty() && errors.is_empty() {
        runs.extend(tidy::read(&text)?);
    }
    if runs.is_empty() {
        return Err(errors.into_iter().next().unwrap_or_else(|| unknown(&text)));
    }
    let messages = complaints(&text);
    for run in &mut runs {
        run.finished = true;
        let most = run.measurements.iter().map(|figure| figure.runs.len()).max().unwrap_or(0);
        if most > 1 && run.profile != "table" {
            run.notes
                .push(format!("results of one name with equal parameters are runs of one figure: {most}"));
        }
        run.notes.extend(messages.iter().cloned());
        run.notes.extend(errors.iter().map(|error| format!("a part of the file is left out: {error}")));
        keep_to_lines(run);
    }
    Ok(runs)
}

/// Reason why a text without any known record cannot be read.
fn unknown(text: &str) -> ImportError {
    match text.trim_start().chars().next() {
        Some('{') => broken("fio JSON", "it has no list `jobs`"),
        Some('<') => broken("diskspd XML", "element Results is missing"),
        _ => ImportError::Unknown,
    }
}

fn too_many_figures() -> ImportError {
    ImportError::TooMuch { most: MAX_MEASUREMENTS, what: "figures" }
}

/// Removes from every text what would end a line or a row where it is shown, and shortens it.
fn keep_to_lines(record: &mut RunRecord) {
    let clean = |text: &mut String| {
        if text.contains(char::is_control) || text.len() > MAX_TEXT {
            let letters = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
            *text = letters.take(MAX_TEXT).collect();
        }
    };
    [&mut record.target, &mut record.profile, &mut record.tool, &mut record.date].into_iter().for_each(clean);
    record.notes.truncate(MAX_NOTES);
    record.notes.iter_mut().for_each(clean);
    record.environment.values_mut().for_each(clean);
    record.measurements.iter_mut().for_each(|figure| clean(&mut figure.name));
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
        let runs = import(text.as_bytes()).expect("fio's");
        assert_eq!((&*runs[0].tool, &*runs[0].measurements[0].name), ("fio -3", "a b 1 2 3  read"));
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
