//! fio's `--output-format=json` and `json+`, of version 3 and of 2.x where latencies are in
//! microseconds.

use serde_json::Value;

use super::{ImportError, broken};
use crate::records::record::{Latencies, MeasurementRecord, Operation, RunRecord, Unit};

const FORMAT: &str = "fio JSON";

pub(super) fn read(text: &str) -> Result<RunRecord, ImportError> {
    // fio prints warnings before the document when standard output is not separated.
    let start = text.find('{').ok_or_else(|| broken(FORMAT, "there is no document"))?;
    let mut documents = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
    let document = match documents.next() {
        Some(Ok(document)) => document,
        Some(Err(error)) => return Err(broken(FORMAT, error.to_string())),
        None => return Err(broken(FORMAT, "there is no document")),
    };
    let jobs = document["jobs"].as_array().or_else(|| document["client_stats"].as_array());
    let jobs = jobs.ok_or_else(|| broken(FORMAT, "it has no list `jobs`"))?;
    let common = &document["global options"];
    let mut record = RunRecord {
        tool: document["fio version"].as_str().unwrap_or("fio").to_owned(),
        profile: "fio".into(),
        target: target(
            &jobs.iter().chain([common]).map(|job| &job["job options"]).collect::<Vec<_>>(),
            common,
        ),
        ..RunRecord::default()
    };
    for job in jobs {
        if job["jobname"] == "All clients" {
            continue;
        }
        let error = job["error"].as_u64().unwrap_or(0);
        if error != 0 {
            record.notes.push(format!("{}: fio ended with error {error}", job_name(job)));
        }
        for (direction, op) in [("read", Operation::Read), ("write", Operation::Write)] {
            record.measurements.extend(measurement(job, common, direction, op));
        }
    }
    if record.measurements.is_empty() {
        return Err(broken(FORMAT, "no job in it read or wrote anything"));
    }
    Ok(record)
}

fn target(jobs: &[&Value], common: &Value) -> String {
    let named = |options: &Value| {
        ["filename", "directory"].iter().find_map(|key| options[*key].as_str().map(str::to_owned))
    };
    named(common).or_else(|| jobs.iter().find_map(|options| named(options))).unwrap_or_default()
}

fn job_name(job: &Value) -> &str {
    job["jobname"].as_str().unwrap_or("job")
}

fn measurement(job: &Value, common: &Value, direction: &str, op: Operation) -> Option<MeasurementRecord> {
    let side = &job[direction];
    let figure = |key: &str| side[key].as_f64().filter(|value| value.is_finite() && *value > 0.0);
    // `bw` alone is there in old versions: KiB a second.
    let bytes_per_s = figure("bw_bytes").or_else(|| figure("bw").map(|kib| kib * 1024.0))?;
    let option = |key: &str| {
        let own = job["job options"][key].as_str();
        own.or_else(|| common[key].as_str()).map(str::to_owned)
    };
    let mut found = MeasurementRecord {
        iops: figure("iops"),
        queue_depth: option("iodepth").and_then(|depth| depth.parse().ok()).or(Some(1)),
        workers: option("numjobs").and_then(|jobs| jobs.parse().ok()).or(Some(1)),
        block_bytes: option("bs").and_then(|size| size_bytes(&size)),
        latency_us: latencies(side),
        unit: Unit::MbPerS,
        ..MeasurementRecord::empty(format!("{} {direction}", job_name(job)), op)
    };
    if option("bssplit").is_some() {
        found.block_bytes = None;
    }
    Some(found.with_runs(vec![bytes_per_s / 1e6]))
}

fn latencies(side: &Value) -> Option<Latencies> {
    let (all, scale) = match (&side["lat_ns"], &side["lat"]) {
        (Value::Null, Value::Null) => return None,
        (Value::Null, old) => (old, 1.0),
        (new, _) => (new, 1e3),
    };
    // Percentiles are those of the time from submission to completion.
    let completion = if scale == 1.0 { &side["clat"] } else { &side["clat_ns"] };
    let of = |value: &Value| value.as_f64().map(|time| time / scale);
    let percentile = |name: &str| [all, completion].iter().find_map(|times| of(&times["percentile"][name]));
    Some(Latencies {
        mean: of(&all["mean"]),
        p50: percentile("50.000000"),
        p99: percentile("99.000000"),
        p999: percentile("99.900000"),
        max: of(&all["max"]),
    })
}

/// `4k`, `1M`, `1024`, and the first of `4k,8k`: fio's units are powers of 1024.
fn size_bytes(text: &str) -> Option<u64> {
    let first = text.split([',', '-']).next()?.trim();
    let end = first.find(|c: char| !c.is_ascii_digit()).unwrap_or(first.len());
    let shift = match first[end..].to_ascii_lowercase().trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return None,
    };
    first[..end].parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = r#"fio: something is odd
{ "fio version" : "fio-3.33", "global options" : { "filename": "/dev/sdx", "bs": "4k", "iodepth": "32" },
  "jobs" : [ { "jobname" : "random", "error" : 0, "job options": { "numjobs": "2", "rw": "randrw" },
    "read" : { "bw_bytes" : 4096000, "iops" : 1000.0,
      "lat_ns": {"mean": 31000.0, "max": 500000},
      "clat_ns": {"percentile": {"50.000000": 30000, "99.000000": 90000, "99.900000": 200000}} },
    "write" : { "bw_bytes" : 0, "iops" : 0.0, "lat_ns": {"mean": 0.0} } } ] }"#;

    #[test]
    fn a_job_becomes_a_figure_for_each_direction_used() {
        let record = read(DOCUMENT).expect("fio");
        assert_eq!((record.tool.as_str(), record.target.as_str()), ("fio-3.33", "/dev/sdx"));
        let [only] = record.measurements.as_slice() else { panic!("{record:?}") };
        assert_eq!((only.name.as_str(), only.op), ("random read", Operation::Read));
        assert_eq!((only.mb_per_s, only.iops), (Some(4.096), Some(1000.0)));
        assert_eq!((only.block_bytes, only.queue_depth, only.workers), (Some(4096), Some(32), Some(2)));
        let latency = only.latency_us.expect("latencies");
        assert_eq!((latency.mean, latency.p99, latency.max), (Some(31.0), Some(90.0), Some(500.0)));
    }

    #[test]
    fn fio_size_suffixes_are_parsed() {
        for (text, bytes) in
            [("4k", 4096), ("1M", 1 << 20), ("1024", 1024), ("64KiB", 65536), ("4k,8k", 4096)]
        {
            assert_eq!(size_bytes(text), Some(bytes), "{text}");
        }
        assert_eq!(size_bytes("many"), None);
    }
}
