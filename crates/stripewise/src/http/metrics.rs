//! How the pools stand, for Prometheus: its text format, version 0.0.4. Counters count since a pool was opened, but for errors, which
//! are the drives' for good.

use std::fmt::Write;

use crate::commands::App;
use crate::left_word::loads;
use crate::report::PoolReport;

/// All of it.
pub fn text(app: &App) -> String {
    let pools: Vec<_> = app
        .served
        .lend_all(app)
        .into_iter()
        .map(|session| {
            let report = session.report();
            let loads = loads(&session.pool, &report);
            (report, loads)
        })
        .collect();
    let mut page = Page::default();
    page.family("stripewise_pool_state", "gauge", "1 for the state that the pool is in");
    for (pool, _) in &pools {
        for state in ["online", "degraded", "failed"] {
            let value = f64::from(u8::from(pool.state == state));
            page.value("stripewise_pool_state", &[("pool", &pool.name), ("state", state)], value);
        }
    }
    type OfPool = fn(&PoolReport) -> f64;
    let of_pools: [(&str, &str, OfPool); 4] = [
        ("stripewise_pool_capacity_bytes", "Space for volumes and their redundancy", |pool| {
            pool.capacity_bytes as f64
        }),
        ("stripewise_pool_allocated_bytes", "What volumes take of it", |pool| pool.allocated_bytes as f64),
        ("stripewise_pool_generation", "Changes of the pool's record so far", |pool| pool.generation as f64),
        ("stripewise_pool_events", "Events that are remembered", |pool| pool.events as f64),
    ];
    for (name, help, of) in of_pools {
        page.family(name, "gauge", help);
        for (pool, _) in &pools {
            page.value(name, &[("pool", &pool.name)], of(pool));
        }
    }
    page.family("stripewise_volume_capacity_bytes", "gauge", "What the volume's clients see");
    for (pool, _) in &pools {
        for volume in &pool.volumes {
            let labels = [("pool", pool.name.as_str()), ("volume", &volume.name), ("layout", &volume.layout)];
            page.value("stripewise_volume_capacity_bytes", &labels, volume.capacity_bytes as f64);
        }
    }
    page.family("stripewise_job_percent", "gauge", "How much of a job is done");
    for (pool, _) in &pools {
        for job in &pool.activity {
            let labels = [("pool", pool.name.as_str()), ("volume", &job.volume), ("kind", &job.kind)];
            page.value("stripewise_job_percent", &labels, job.percent);
        }
    }
    page.family("stripewise_job_bytes_per_second", "gauge", "How fast a job goes on");
    for (pool, _) in &pools {
        for job in &pool.activity {
            let labels = [("pool", pool.name.as_str()), ("volume", &job.volume), ("kind", &job.kind)];
            page.value("stripewise_job_bytes_per_second", &labels, job.mb_per_s * 1e6);
        }
    }
    type OfDrive = fn(&crate::report::DriveReport, &crate::left_word::DriveLoad) -> f64;
    let of_drives: [(&str, &str, &str, OfDrive); 9] = [
        ("stripewise_drive_online", "gauge", "1 for a drive in service", |drive, _| {
            f64::from(u8::from(crate::report::takes_part(&drive.state)))
        }),
        ("stripewise_drive_requests_total", "counter", "Requests, neighbours merged", |_, load| {
            load.requests as f64
        }),
        ("stripewise_drive_read_bytes_total", "counter", "Bytes read", |_, load| load.read_bytes as f64),
        ("stripewise_drive_written_bytes_total", "counter", "Bytes written", |_, load| {
            load.written_bytes as f64
        }),
        ("stripewise_drive_busy_seconds_total", "counter", "Time spent serving requests", |_, load| {
            load.busy_ns as f64 / 1e9
        }),
        ("stripewise_drive_queue_depth", "gauge", "Requests that wait or are being served", |_, load| {
            load.queued as f64
        }),
        ("stripewise_drive_read_errors_total", "counter", "Reads that failed", |drive, _| {
            drive.read_errors as f64
        }),
        ("stripewise_drive_write_errors_total", "counter", "Writes that failed", |drive, _| {
            drive.write_errors as f64
        }),
        ("stripewise_drive_checksum_errors_total", "counter", "Blocks found wrong", |drive, _| {
            drive.checksum_errors as f64
        }),
    ];
    for (name, kind, help, of) in of_drives {
        page.family(name, kind, help);
        for (pool, loads) in &pools {
            for (drive, load) in pool.drives.iter().zip(loads) {
                let labels = [("pool", pool.name.as_str()), ("drive", &drive.id), ("path", &drive.path)];
                page.value(name, &labels, of(drive, load));
            }
        }
    }
    page.text
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn value(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let _ = writeln!(self.text, "{name}{{{}}} {value}", labels.join(","));
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut page = Page::default();
        page.family("a", "gauge", "What it is");
        page.value("a", &[("path", "/d/\"x\"\\\n"), ("b", "c")], 1.5);
        assert_eq!(
            page.text,
            "# HELP a What it is\n# TYPE a gauge\na{path=\"/d/\\\"x\\\"\\\\\\n\",b=\"c\"} 1.5\n"
        );
    }
}
