//! fio's JSON documents in a text: of version 3, of 2.x with latencies in microseconds, and of a
//! client with the results of its servers.
//!
//! Expects notes and other text around documents, documents that are cut off, and `nan` in place of
//! numbers. The work is bounded: the text is scanned a fixed number of times.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{DIRECTIONS, Document, Job, Side};
use crate::records::dates::seconds_of;
use crate::records::import::kit::is_absent;
use crate::records::import::{ImportError, broken};
use crate::records::record::{Latencies, Operation};

const FORMAT: &str = "fio JSON";
/// First keys of a document.
const KEYS: [&str; 8] = [
    "fio version",
    "timestamp",
    "timestamp_ms",
    "time",
    "global options",
    "jobs",
    "client_stats",
    "disk_util",
];
/// Times that a text is scanned for the ends of documents.
const MAX_SCANS: usize = 64;

/// The documents of a text in their order, and notes on those that cannot be read.
pub(super) fn documents(text: &str) -> Result<(Vec<Document>, Vec<String>), ImportError> {
    let (mut found, mut notes) = (Vec::new(), Vec::new());
    let (mut at, mut scanned) = (0, 0);
    while let Some(start) = text[at..].find('{').map(|next| at + next) {
        at = start + 1;
        if !opens_document(&text[start..]) {
            continue;
        }
        if scanned > text.len().saturating_mul(MAX_SCANS) {
            return Err(broken(FORMAT, "too many documents in it have no end"));
        }
        let line = || 1 + text[..start].matches('\n').count();
        let Some(length) = length_of(&text[start..]) else {
            scanned += text.len() - start;
            if notes.len() < 10 {
                notes.push(format!("the document that begins in line {} is cut off", line()));
            }
            continue;
        };
        let own = &text[start..start + length];
        scanned += length;
        match parsed(own).map_err(|error| error.to_string()).and_then(|(value, absent)| {
            document(&value, absent).ok_or_else(|| "it has no list `jobs`".to_owned())
        }) {
            Ok(document) => {
                found.push(document);
                at = start + length;
            }
            Err(why) if notes.len() < 10 => {
                notes.push(format!("the document that begins in line {} cannot be read: {why}", line()));
            }
            Err(_) => {}
        }
    }
    Ok((found, notes))
}

/// True if an object begins here with a key that fio's documents begin with.
fn opens_document(text: &str) -> bool {
    let key = text[1..].trim_start().strip_prefix('"');
    key.is_some_and(|rest| {
        KEYS.iter().any(|key| rest.strip_prefix(key).is_some_and(|rest| rest.starts_with('"')))
    })
}

/// Length of the object that begins here; `None` if it does not end.
fn length_of(text: &str) -> Option<usize> {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'\n' if in_string => return None,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// The value, and the number of places in it that are no number, such as `nan`.
fn parsed(text: &str) -> serde_json::Result<(Value, usize)> {
    serde_json::from_str(text).map(|value| (value, 0)).or_else(|_| {
        let (text, absent) = with_nulls(text);
        Ok((serde_json::from_str(&text)?, absent))
    })
}

/// Puts `null` in the place of bare words such as `-nan` and `inf`.
fn with_nulls(text: &str) -> (String, usize) {
    let (mut clean, mut absent) = (String::with_capacity(text.len()), 0);
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        if letter == '"' {
            // A string, up to its closing quote.
            let mut escaped = true;
            let end = rest.bytes().position(|byte| {
                let closes = byte == b'"' && !escaped;
                escaped = byte == b'\\' && !escaped;
                closes
            });
            let end = end.map_or(rest.len(), |end| end + 1);
            clean.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        }
        let end = rest.find([',', '}', ']', '{', '[', ':', '"', '\n']).unwrap_or(rest.len());
        let word = rest[..end].trim();
        if !word.is_empty() && word != "null" && is_absent(word) {
            clean.push_str("null");
            absent += 1;
        } else {
            clean.push_str(&rest[..end]);
        }
        rest = &rest[end..];
        if let Some(mark) = rest.chars().next().filter(|mark| *mark != '"') {
            clean.push(mark);
            rest = &rest[mark.len_utf8()..];
        }
    }
    (clean, absent)
}

fn document(value: &Value, absent: usize) -> Option<Document> {
    let entries = value["jobs"].as_array().or_else(|| value["client_stats"].as_array())?;
    let common = options_of(&value["global options"]);
    let mut document = Document {
        version: value["fio version"].as_str().unwrap_or_default().to_owned(),
        ..Document::default()
    };
    if absent > 0 {
        document.notes.push(format!("values that are no numbers (nan) are left out: {absent}"));
    }
    let mut elapsed_s: f64 = 0.0;
    for entry in entries.iter().filter(|entry| entry["jobname"] != "All clients") {
        let job = job(entry, &common);
        let error = entry["error"].as_i64().unwrap_or(0);
        if error != 0 {
            document.notes.push(format!("{}: fio ended with error {error}", job.name));
        }
        if let Some(errors) = entry["total_err"].as_u64().filter(|errors| *errors > 0) {
            document.notes.push(format!("{}: errors during the run: {errors}", job.name));
        }
        elapsed_s = elapsed_s.max(entry["elapsed"].as_f64().unwrap_or(0.0));
        document.remaining_s = document.remaining_s.max(entry["eta"].as_f64().unwrap_or(0.0));
        document.jobs.push(job);
    }
    let now = value["timestamp_ms"].as_f64().map(|ms| ms / 1e3).or_else(|| value["timestamp"].as_f64());
    let local = || Some(seconds_of(value["time"].as_str()?)? as f64);
    document.started_s = now.or_else(local).map(|now| now - elapsed_s);
    Some(document)
}

fn options_of(value: &Value) -> BTreeMap<String, String> {
    let options = value.as_object().into_iter().flatten();
    options.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
}

fn job(entry: &Value, common: &BTreeMap<String, String>) -> Job {
    let mut options = common.clone();
    options.extend(options_of(&entry["job options"]));
    options.remove("name");
    let sides = DIRECTIONS.into_iter().chain([("mixed", Operation::Mixed)]);
    Job {
        name: entry["jobname"].as_str().unwrap_or("job").to_owned(),
        host: entry["hostname"].as_str().unwrap_or_default().to_owned(),
        group: entry["groupid"].as_u64().unwrap_or(0),
        options,
        part: 0,
        workers: None,
        sides: sides.filter_map(|(name, op)| side(&entry[name], name, op)).collect(),
    }
}

/// A direction that moved data; fio prints zeros for the others.
fn side(value: &Value, name: &'static str, op: Operation) -> Option<Side> {
    let figure = |key: &str| value[key].as_f64().filter(|value| value.is_finite() && *value > 0.0);
    let bytes = figure("io_bytes");
    let runtime_s = figure("runtime").map(|ms| ms / 1e3);
    // `bw` alone is there in old versions: KiB a second.
    let printed = figure("bw_bytes").or_else(|| figure("bw").map(|kib| kib * 1024.0));
    let over_time = || bytes.zip(runtime_s).map(|(bytes, seconds)| bytes / seconds);
    let (latency, samples) = latencies(value);
    Some(Side {
        name,
        op,
        bytes,
        requests: figure("total_ios"),
        runtime_s,
        bytes_per_s: printed.or_else(over_time)?,
        iops: figure("iops"),
        latency,
        samples,
    })
}

/// Latencies and the number of requests they are of. Times with `N` 0 were not taken.
fn latencies(side: &Value) -> (Option<Latencies>, f64) {
    let (total, completion, scale) = match side["lat_ns"].is_null() && side["clat_ns"].is_null() {
        true => (&side["lat"], &side["clat"], 1.0),
        false => (&side["lat_ns"], &side["clat_ns"], 1e3),
    };
    let time = |value: &Value| value.as_f64().filter(|time| *time > 0.0).map(|time| time / scale);
    let count = |times: &Value| times["N"].as_f64();
    let is_taken = |times: &&Value| count(times) != Some(0.0) && time(&times["mean"]).is_some();
    // Without `lat` the time from submission to completion is known in part.
    let Some(all) = [total, completion].into_iter().find(is_taken) else { return (None, 0.0) };
    let percentile =
        |name: &str| [total, completion].iter().find_map(|times| time(&times["percentile"][name]));
    let latency = Latencies {
        mean: time(&all["mean"]),
        p50: percentile("50.000000"),
        p99: percentile("99.000000"),
        p999: percentile("99.900000"),
        max: time(&all["max"]),
    };
    (Some(latency), count(all).or_else(|| side["total_ios"].as_f64()).unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_no_numbers_become_null() {
        let (clean, absent) =
            with_nulls(r#"{"a": nan, "b,nan": [-nan, inf], "c": "nan", "d": true, "e\"": -1}"#);
        assert_eq!(absent, 3);
        let value: Value = serde_json::from_str(&clean).expect("JSON");
        assert_eq!(value["b,nan"], serde_json::json!([null, null]));
        assert_eq!((&value["c"], &value["d"], &value["e\""]), (&"nan".into(), &true.into(), &(-1).into()));
    }

    #[test]
    fn documents_are_found_between_other_text() {
        let whole = r#"{"fio version": "fio-3", "jobs": []}"#;
        let cut = r#"{"fio version": "fio-3", "jobs": [ {"jobname": "a"#;
        let text = format!("note: {{see}} \"it's\n$ fio\n{cut}\n{whole}\n[code]{whole}[/code]\n");
        let (found, notes) = documents(&text).expect("bounded");
        assert_eq!(
            (found.len(), notes),
            (2, vec!["the document that begins in line 3 is cut off".to_owned()])
        );
    }

    #[test]
    fn endless_documents_are_refused_early() {
        let text = "{\"jobs\":[".repeat(2_000);
        assert!(documents(&text).is_err());
        let deep = format!("{{\"jobs\":{}{}}}", "[".repeat(5_000), "]".repeat(5_000));
        assert!(documents(&deep).expect("bounded").0.is_empty());
    }
}
