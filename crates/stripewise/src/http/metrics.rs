//! Metrics of the served pools in the text format of Prometheus, version 0.0.4. Counters start at 0
//! when a pool is opened, except error counters, which the pool keeps per drive. `docs/daemon.md`
//! describes every metric; a test compares it with this file.

use stripewise_control::pools::session::Session;
use stripewise_control::pools::status_file::loads;
use stripewise_control::report::{LogReport, PoolReport, PoolState};
use stripewise_pool::{LATENCY_STEPS_NS, RequestCounts, RequestKind, VolumeLoad};

use super::metrics_page::Page;
use crate::commands::App;

/// Returns all metrics.
pub(super) fn text(app: &App) -> String {
    let mut page = Page::default();
    drives_and_jobs(app, &mut page);
    volumes(app, &mut page);
    listeners(app, &mut page);
    page.into_text()
}

fn drives_and_jobs(app: &App, page: &mut Page) {
    let pools: Vec<_> = Session::all_served(app)
        .into_iter()
        .map(|session| {
            let report = session.report();
            let loads = loads(&session.pool, &report);
            (report, loads)
        })
        .collect();
    page.family("stripewise_pool_state", "gauge", "1 for the state that the pool is in");
    for (pool, _) in &pools {
        for state in [PoolState::Online, PoolState::Degraded, PoolState::Failed] {
            let value = f64::from(u8::from(pool.state == state));
            page.value(
                "stripewise_pool_state",
                &[("pool", &pool.name), ("state", &state.to_string())],
                value,
            );
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
    logs(pools.iter().map(|(pool, _)| pool), page);
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
    type OfDrive = fn(
        &stripewise_control::report::DriveReport,
        &stripewise_control::pools::status_file::DriveLoad,
    ) -> f64;
    let of_drives: [(&str, &str, &str, OfDrive); 9] = [
        ("stripewise_drive_online", "gauge", "1 for a drive in service", |drive, _| {
            f64::from(u8::from(drive.state.takes_part()))
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
}

/// Log volumes: their data and the cost of cleaning.
fn logs<'a>(pools: impl Iterator<Item = &'a PoolReport> + Clone, page: &mut Page) {
    type OfLog = fn(&LogReport) -> Option<u64>;
    let of_logs: [(&str, &str, &str, OfLog); 7] = [
        ("stripewise_log_live_bytes", "gauge", "Data of a log volume that is live, at most", |log| {
            log.live_bytes
        }),
        ("stripewise_log_snapshots", "gauge", "Snapshots of a log volume", |log| log.snapshots),
        ("stripewise_log_snapshot_bytes", "gauge", "Data that only snapshots hold, at least", |log| {
            log.snapshot_bytes
        }),
        ("stripewise_log_client_bytes_total", "counter", "Data that clients wrote to a log volume", |log| {
            log.client_bytes
        }),
        ("stripewise_log_written_bytes_total", "counter", "Data and map written to segments", |log| {
            log.segment_written_bytes
        }),
        ("stripewise_log_moved_bytes_total", "counter", "Data moved by the cleaner", |log| log.moved_bytes),
        ("stripewise_log_cleaned_segments_total", "counter", "Segments cleaned", |log| log.cleaned_segments),
    ];
    for (name, kind, help, of) in of_logs {
        page.family(name, kind, help);
        for pool in pools.clone() {
            // A clone has the log of another volume.
            for volume in pool.volumes.iter().filter(|volume| volume.clone_of.is_none()) {
                if let Some(value) = volume.log.as_ref().and_then(of) {
                    let labels = [("pool", pool.name.as_str()), ("volume", &volume.name)];
                    page.value(name, &labels, value as f64);
                }
            }
        }
    }
}

/// Requests of the volumes' clients, and their durations.
fn volumes(app: &App, page: &mut Page) {
    let loads: Vec<(String, VolumeLoad)> = Session::all_served(app)
        .iter()
        .flat_map(|session| {
            let pool = session.name().to_owned();
            session.pool.volume_loads().into_iter().map(move |load| (pool.clone(), load))
        })
        .collect();
    let name = "stripewise_volume_request_seconds";
    page.family(name, "histogram", "How long requests took that succeeded");
    for (labels, counts) in of_kinds(&loads) {
        page.histogram(name, &labels, &LATENCY_STEPS_NS, &counts.by_latency, counts.total_ns);
    }
    let name = "stripewise_volume_request_bytes_total";
    page.family(name, "counter", "Bytes of requests that succeeded");
    for (labels, counts) in of_kinds(&loads) {
        page.value(name, &labels, counts.bytes as f64);
    }
    let name = "stripewise_volume_failed_requests_total";
    page.family(name, "counter", "Requests that ended in an error");
    for (labels, counts) in of_kinds(&loads) {
        page.value(name, &labels, counts.failed as f64);
    }
    type OfVolume = fn(&VolumeLoad) -> Option<f64>;
    let of_volumes: [(&str, &str, OfVolume); 3] = [
        ("stripewise_volume_queue_depth", "Requests that are not answered yet", |load| {
            Some(load.in_flight as f64)
        }),
        ("stripewise_volume_journal_used_bytes", "What the volume's journal holds", |load| {
            load.journal.map(|(used, _)| used as f64)
        }),
        ("stripewise_volume_journal_size_bytes", "What its journal has room for", |load| {
            load.journal.map(|(_, size)| size as f64)
        }),
    ];
    for (name, help, of) in of_volumes {
        page.family(name, "gauge", help);
        for (pool, load) in &loads {
            if let Some(value) = of(load) {
                page.value(name, &[("pool", pool), ("volume", &load.volume)], value);
            }
        }
    }
}

type OfKind<'a> = ([(&'static str, &'a str); 3], &'a RequestCounts);

fn of_kinds(loads: &[(String, VolumeLoad)]) -> impl Iterator<Item = OfKind<'_>> {
    loads.iter().flat_map(|(pool, load)| {
        RequestKind::ALL.into_iter().map(|kind| {
            let labels = [("pool", pool.as_str()), ("volume", &load.volume), ("operation", kind.word())];
            (labels, load.of(kind))
        })
    })
}

/// Connections, by protocol.
fn listeners(app: &App, page: &mut Page) {
    let listeners = app.served.listeners().borrow();
    if let Some(nbd) = &listeners.nbd {
        let status = nbd.status();
        let counts = [status.clients as u64, status.connected, status.given_up, status.turned_away];
        connections(page, "nbd", "NBD clients", counts);
    }
    if let Some(vhost) = &listeners.vhost {
        let status = vhost.status();
        let counts = [status.clients as u64, status.connected, status.given_up, status.turned_away];
        connections(page, "vhost", "vhost-user front ends", counts);
    }
    let name = "stripewise_fuse_requests_under_way";
    page.family(name, "gauge", "Requests of mounted files that are not answered yet");
    page.value(name, &[], listeners.fuse.iter().map(|load| load.in_flight()).sum::<usize>() as f64);
}

/// Connections of one protocol: now, since the start, dropped, and refused.
fn connections(page: &mut Page, protocol: &str, clients: &str, counts: [u64; 4]) {
    let families = [
        ("connections", "gauge", "that are connected"),
        ("connections_total", "counter", "that connected"),
        ("given_up_total", "counter", "that were given up"),
        ("turned_away_total", "counter", "too many"),
    ];
    for ((name, kind, help), count) in families.into_iter().zip(counts) {
        let name = format!("stripewise_{protocol}_{name}");
        page.family(&name, kind, &format!("{clients} {help}"));
        page.value(&name, &[], count as f64);
    }
}
