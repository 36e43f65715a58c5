//! fio: JSON with text around it, several documents, clones, times that were not taken, trims,
//! clients, terse lines, text.

use serde_json::{Value, json};
use stripewise_lab::record::Operation;

use super::{figure, is_noted, mb_per_s, names, refused, run_of};

/// A direction with a rate; the time is 10 s.
fn side(bytes_per_s: u64, iops: f64) -> Value {
    json!({
        "io_bytes": bytes_per_s * 10, "bw_bytes": bytes_per_s, "iops": iops, "runtime": 10_000,
        "total_ios": iops * 10.0,
        "lat_ns": {"min": 900, "max": 500_000, "mean": 31_000.0, "N": 100},
        "clat_ns": {"N": 100, "percentile": {"50.000000": 30_000, "99.000000": 90_000}},
    })
}

fn idle() -> Value {
    let none = json!({"min": 0, "max": 0, "mean": 0.0, "N": 0});
    json!({"io_bytes": 0, "bw_bytes": 0, "iops": 0.0, "runtime": 0, "total_ios": 0, "lat_ns": none, "clat_ns": none})
}

fn job(name: &str, options: Value, read: Value) -> Value {
    json!({"jobname": name, "groupid": 0, "error": 0, "eta": 0, "elapsed": 11,
        "job options": options, "read": read, "write": idle(), "trim": idle()})
}

fn document(second: u64, jobs: &[Value]) -> Value {
    json!({"fio version": "fio-3.33", "timestamp": second, "timestamp_ms": second * 1000,
        "global options": {"filename": "/dev/sdx"}, "jobs": jobs})
}

fn text(document: &Value) -> String {
    serde_json::to_string_pretty(document).expect("JSON")
}

fn db(rate: u64) -> Value {
    job("db", json!({"bs": "4k", "iodepth": "32", "ioengine": "libaio"}), side(rate, rate as f64 / 4096.0))
}

#[test]
fn fio_json_is_found_in_other_text() {
    let document = text(&document(1_760_000_000, &[db(8_192_000)]));
    for (before, after) in [
        ("", ""),
        ("note: both iodepth >= 1 and a synchronous engine are selected\n", ""),
        ("\u{feff}CPU mask cannot bind CPUs (e.g. 64, 191)\r\n", "\r\n"),
        ("$ fio db.fio --output-format=json | tee {log}\n", "$ exit\n"),
        ("db: (g=0): rw=randread, bs=(R) 4096B-4096B\nfio-3.33\n", "\nRun status group 0 (all jobs):\n"),
        ("\u{1b}[1mJobs: 1 (f=1)\u{1b}[0m\rJobs: 0 (f=0)\r", ""),
    ] {
        let run = run_of(&format!("{before}{document}{after}"));
        assert_eq!((&*run.tool, &*run.target), ("fio-3.33", "/dev/sdx"), "{before}");
        assert_eq!((run.date.as_str(), names(&run)), ("2025-10-09T08:53:09Z", vec!["db read"]));
        let only = &run.measurements[0];
        assert_eq!((only.mb_per_s, only.iops, only.block_bytes), (Some(8.192), Some(2000.0), Some(4096)));
        assert_eq!((only.queue_depth, only.workers), (Some(32), Some(1)));
        let latency = only.latency_us.expect("latencies");
        assert_eq!((latency.mean, latency.p99, latency.max), (Some(31.0), Some(90.0), Some(500.0)));
    }
}

#[test]
fn the_last_result_of_a_fio_process_counts() {
    let mut early = document(1_760_000_000, &[db(1_000_000)]);
    early["jobs"][0]["eta"] = json!(9);
    early["jobs"][0]["elapsed"] = json!(2);
    let last = document(1_760_000_009, &[db(8_192_000)]);
    let run = run_of(&format!("{}\n{}", text(&early), text(&last)));
    assert_eq!((figure(&run, "db read").runs.as_slice(), run.measurements.len()), (&[8.192][..], 1));
    assert!(is_noted(&run, "interim results left out: 1"), "{:?}", run.notes);
}

#[test]
fn appended_fio_runs_are_runs_or_figures() {
    let documents = [(0, 4_096_000), (60, 8_192_000), (120, 6_144_000)];
    let all: String =
        documents.iter().map(|(at, rate)| text(&document(1_760_000_000 + at, &[db(*rate)]))).collect();
    let run = run_of(&all);
    assert_eq!(figure(&run, "db read").runs, [4.096, 8.192, 6.144]);
    assert_eq!((mb_per_s(&run, "db read"), figure(&run, "db read").iops), (6.144, Some(1500.0)));
    let log = job("log", json!({"bs": "64k"}), side(1_000_000, 10.0));
    let large = job("db", json!({"bs": "1M", "iodepth": "32"}), side(9_000_000, 9.0));
    let others = [document(1_760_000_200, &[log]), document(1_760_000_300, &[large])]
        .iter()
        .map(text)
        .collect::<String>();
    let run = run_of(&format!("{all}{others}"));
    assert_eq!(names(&run), ["db read", "log read", "db read#2"]);
    assert_eq!(figure(&run, "db read#2").block_bytes, Some(1 << 20));
}

#[test]
fn clones_of_a_fio_job_are_added_up() {
    let clone = job("db", json!({"numjobs": "4", "bs": "4k", "iodepth": "8"}), side(20_480_000, 5000.0));
    let run = run_of(&text(&document(1_760_000_000, &[clone.clone(), clone.clone(), clone.clone(), clone])));
    let only = figure(&run, "db read");
    assert_eq!((only.mb_per_s, only.iops, only.workers), (Some(81.92), Some(20_000.0), Some(4)));
    assert_eq!((only.queue_depth, only.runs.len()), (Some(8), 1));
    let latency = only.latency_us.expect("a mean");
    assert_eq!((latency.mean, latency.p50), (Some(31.0), None));
}

#[test]
fn latencies_that_fio_did_not_take_are_absent() {
    let mut read = side(1_000_000, 10.0);
    let none =
        json!({"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0, "percentile": {"50.000000": 0}});
    (read["lat_ns"], read["clat_ns"]) = (none.clone(), none);
    let run = run_of(&text(&document(1_760_000_000, &[job("db", json!({}), read)])));
    assert_eq!(figure(&run, "db read").latency_us, None);
    let nan = text(&document(1_760_000_000, &[db(8_192_000)])).replace("31000.0", "-nan");
    let run = run_of(&nan);
    assert_eq!((mb_per_s(&run, "db read"), is_noted(&run, "no numbers (nan)")), (8.192, true));
}

#[test]
fn fio_directions_have_their_own_sizes_and_trims() {
    let mut both = job("mix", json!({"bs": "4k,64k"}), side(4_096_000, 1000.0));
    both["write"] = side(65_536_000, 1000.0);
    let mut erase = job("erase", json!({"bs": "1M", "rw": "trim"}), idle());
    erase["trim"] = side(900_000_000, 858.3);
    let mut split = job("split", json!({"bssplit": "4k/50:8k/50"}), side(1_000_000, 10.0));
    split["error"] = json!(5);
    let run = run_of(&text(&document(1_760_000_000, &[both, erase, split])));
    assert_eq!(names(&run), ["mix read", "mix write", "erase trim", "split read"]);
    let sizes =
        ["mix read", "mix write", "erase trim", "split read"].map(|name| figure(&run, name).block_bytes);
    assert_eq!(sizes, [Some(4096), Some(65536), Some(1 << 20), None]);
    assert_eq!(figure(&run, "erase trim").op, Operation::Discard);
    assert!(is_noted(&run, "split: fio ended with error 5"));
}

#[test]
fn hosts_of_a_fio_client_are_named() {
    let of_host = |host: &str, rate: u64| {
        let mut job = db(rate);
        job["hostname"] = json!(host);
        job
    };
    let mut all = of_host("", 5_000_000);
    all["jobname"] = json!("All clients");
    let mut client = document(1_760_000_000, &[]);
    let jobs = vec![of_host("alpha", 2_000_000), of_host("beta", 3_000_000), all];
    client.as_object_mut().expect("an object").remove("jobs");
    client["client_stats"] = json!(jobs);
    let run = run_of(&text(&client));
    assert_eq!(names(&run), ["alpha: db read", "beta: db read"]);
    assert_eq!((mb_per_s(&run, "alpha: db read"), mb_per_s(&run, "beta: db read")), (2.0, 3.0));
}

#[test]
fn cut_off_fio_documents_are_named() {
    let whole = text(&document(1_760_000_000, &[db(8_192_000)]));
    let cut = &whole[..whole.len() / 2];
    assert!(refused(&format!("a note\n{cut}")).contains("begins in line 2 is cut off"));
    let run = run_of(&format!("{cut}\n{whole}"));
    assert!(is_noted(&run, "line 1 is cut off") && names(&run) == ["db read"], "{:?}", run.notes);
    assert!(refused("{\"fio version\": \"fio-3\", \"jobs\": []}").contains("no job in it"));
}

/// A terse direction: KiB, KiB a second, requests a second, milliseconds, and a mean of 31 us.
fn terse_side(kib: u64, rate: u64, iops: u64, ms: u64, more: &str) -> String {
    let percentiles: String =
        ["50.000000%=30", "99.000000%=90", "99.900000%=200"].join(";") + &";0%=0".repeat(17);
    let mean = if iops == 0 { 0 } else { 31 };
    format!("{kib};{rate};{iops};{ms};0;0;0;0;1;480;{mean};5;{percentiles};1;500;{mean};5;0;0;0%;0;0{more}")
}

fn terse_line(version: u32, sides: &[String]) -> String {
    let name = if version == 2 { "2;db;0;0".to_owned() } else { format!("{version};fio-3.33;db;0;0") };
    format!("{name};{};1.0%;2.0%;300;0;0;100.0%;0%;0%;0%;0%;0%;0%\n", sides.join(";"))
}

#[test]
fn fio_terse_columns_follow_their_version() {
    let (read, idle) = (terse_side(80_000, 8000, 2000, 10_000, ""), terse_side(0, 0, 0, 0, ""));
    let more = ";3;1;2;3;4;5";
    let wide = [terse_side(80_000, 8000, 2000, 10_000, more), terse_side(0, 0, 0, 0, more)];
    let trim = terse_side(40_000, 4000, 4, 10_000, more);
    for line in [
        terse_line(2, &[read.clone(), idle.clone()]),
        terse_line(3, &[read.clone(), idle.clone()]),
        terse_line(4, &[read.clone(), idle.clone(), idle.clone()]),
        terse_line(5, &[wide[0].clone(), wide[1].clone(), wide[1].clone()]),
    ] {
        let run = run_of(&format!("fio: a warning\n{line}"));
        let only = figure(&run, "db read");
        assert_eq!((only.mb_per_s, only.iops), (Some(8.192), Some(2000.0)), "{line}");
        let latency = only.latency_us.expect("latencies");
        assert_eq!((latency.mean, latency.p99, latency.max), (Some(31.0), Some(90.0), Some(500.0)));
        assert!(is_noted(&run, "a warning") && run.notes.len() == 1 && run.measurements.len() == 1);
    }
    let run = run_of(&terse_line(5, &[wide[1].clone(), wide[1].clone(), trim]));
    assert_eq!((names(&run), mb_per_s(&run, "db trim")), (vec!["db trim"], 4.096));
}

#[test]
fn terse_lines_of_one_job_stay_apart() {
    let line = |rate: u64, ms: u64| {
        terse_line(3, &[terse_side(rate * ms / 1000, rate, 10, ms, ""), terse_side(0, 0, 0, 0, "")])
    };
    let run = run_of(&[line(1000, 1000), line(2000, 2000), line(3000, 3001)].concat());
    assert_eq!(mb_per_s(&run, "db read"), 3.072);
    let run = run_of(&[line(1000, 3000), line(2000, 3000)].concat());
    assert_eq!((names(&run), is_noted(&run, "clones or repeated")), (vec!["db read", "db read#2"], true));
}

const NEW_TEXT: &str = "\
db: (g=0): rw=randrw, bs=(R) 4096B-4096B, (W) 8192B-8192B, (T) 8192B-8192B, ioengine=libaio, iodepth=32
fio-3.33
Starting 1 process

db: (groupid=0, jobs=1): err= 0: pid=193: Fri Nov 27 09:06:16 2026
  read: IOPS=20.0k, BW=78.1MiB/s (81.9MB/s)(781MiB/10001msec)
    slat (usec): min=1, max=71, avg= 2.10, stdev= 0.30
    clat (usec): min=21, max=9000, avg=250.00, stdev=1.00
     lat (usec): min=22, max=9100, avg=252.10, stdev=1.00
    clat percentiles (usec):
     |  1.00th=[   30], 50.00th=[  240], 99.00th=[  610],
     | 99.90th=[ 1200], 99.99th=[ 4000]
   bw (  KiB/s): min=20150, max=25352, per=96.76%, avg=21943.33, stdev=2953.33, samples=3
  write: IOPS=5, BW=43.0KiB/s (44.0kB/s)(430KiB/10001msec); 0 zone resets
     lat (msec): min=1, max=9, avg= 2.50, stdev= 0.10
  lat (usec)   : 2=2.13%, 4=6.02%

Run status group 0 (all jobs):
   READ: bw=78.1MiB/s (81.9MB/s), 78.1MiB/s-78.1MiB/s (81.9MB/s-81.9MB/s), io=781MiB (819MB), run=10001-10001msec
";

#[test]
fn fio_text_is_read_with_a_note() {
    let run = run_of(NEW_TEXT);
    assert_eq!(
        (&*run.tool, &*run.date, names(&run)),
        ("fio-3.33", "2026-11-27T09:06:16Z", vec!["db read", "db write"])
    );
    let read = figure(&run, "db read");
    assert_eq!((read.mb_per_s, read.iops), (Some(81.9), Some(20_000.0)));
    assert_eq!((read.block_bytes, read.queue_depth, read.workers), (Some(4096), Some(32), Some(1)));
    let latency = read.latency_us.expect("latencies");
    assert_eq!(
        (latency.mean, latency.p99, latency.p999, latency.max),
        (Some(252.1), Some(610.0), Some(1200.0), Some(9100.0))
    );
    let write = figure(&run, "db write");
    assert_eq!((write.mb_per_s, write.block_bytes), (Some(0.044), Some(8192)));
    assert_eq!(write.latency_us.expect("a mean").mean, Some(2500.0));
    assert!(is_noted(&run, "rounded"));
}

#[test]
fn text_of_fio_2_has_powers_of_1024() {
    let old = "db: (g=0): rw=read, bs=4K-4K/8K-8K/4K-4K, ioengine=libaio, iodepth=4\nfio-2.2.10\n
db: (groupid=0, jobs=2): err= 0: pid=7: Tue Mar  1 10:00:00 2016
  read : io=1000.0MB, bw=102400KB/s, iops=25600, runt= 10000msec
    clat (usec): min=3, max=900, avg=150.00, stdev= 2.00
     lat (usec): min=4, max=901, avg=151.00, stdev= 2.00
";
    let run = run_of(old);
    let read = figure(&run, "db read");
    assert_eq!((read.mb_per_s, read.iops, read.workers), (Some(104.8576), Some(25_600.0), Some(2)));
    assert_eq!((read.block_bytes, read.latency_us.expect("a mean").mean), (Some(4096), Some(151.0)));
}
