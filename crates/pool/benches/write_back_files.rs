//! Prints what a journal gives to small writes on paced files, in real time: what `write_back.rs`
//! measures on modelled drives, acknowledged by the journal or in place, in turns. Bounded in time:
//! less than fifteen minutes.
//!
//! Six sparse files are made for each run, beside the build or in `STRIPEWISE_BENCH_DIR`, and
//! removed. A pace holds a drive to no more than stated; whether the disk beneath can give as much
//! to all six at once shows in what writing through comes to. A word on the command line keeps the
//! kinds of drives whose name has it.

#[path = "../tests/it/kit/mod.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod kit;
mod small_writes;

use std::path::{Path, PathBuf};
use std::rc::Rc;

use kit::pool::MIB;
use small_writes::{ALL_DRIVES, Load, Rates, Stretch};
use stripewise_drive::{BufferPool, Drive, Pace, PacedDrive};
use stripewise_runtime::{CreateOptions, OpenOptions, RealExecutor, create_drive_file};

const PAIRS: usize = 5;
const SECOND_NS: u64 = 1_000_000_000;
const FILE_BYTES: u64 = 2048 * MIB;
/// A journal is a share of its volume: this one takes some hundred writes, so that a long run need
/// not be very long to see it fill and empty.
const VOLUME_BYTES: u64 = 2304 * MIB;

/// Drives of one kind, and how long it takes to see what they do.
struct Kind {
    name: &'static str,
    pace: &'static str,
    burst_writes: u64,
    preconditioning_ns: u64,
    long_run_ns: u64,
}

const KINDS: [Kind; 2] = [
    Kind {
        name: "hard disk",
        pace: "200MB/s,125iops",
        burst_writes: 400,
        // The burst goes in place first, one request for each of its writes and more: its gain is
        // not the long run's loss.
        preconditioning_ns: 10 * SECOND_NS,
        long_run_ns: 40 * SECOND_NS,
    },
    Kind {
        name: "SATA SSD",
        pace: "500MB/s,10000iops",
        burst_writes: 400,
        preconditioning_ns: SECOND_NS / 2,
        long_run_ns: 2 * SECOND_NS,
    },
];

struct Files(Vec<PathBuf>);

impl Files {
    fn make(directory: &Path) -> Self {
        std::fs::create_dir_all(directory).expect("a folder for the drives");
        let files = Self((0..ALL_DRIVES).map(|index| directory.join(format!("drive{index}.img"))).collect());
        for path in &files.0 {
            let options = CreateOptions { replace_existing: true, ..CreateOptions::new(FILE_BYTES) };
            create_drive_file(path, &options).expect("a drive file");
        }
        files
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = std::fs::remove_file(path);
        }
        if let Some(directory) = self.0.first().and_then(|path| path.parent()) {
            let _ = std::fs::remove_dir(directory);
        }
    }
}

/// Writes per second, of a new pool on new files.
fn rates(directory: &Path, kind: &Kind, write_back: bool) -> Rates {
    let files = Files::make(directory);
    let pace: Pace = kind.pace.parse().expect("a pace");
    let load = Load {
        volume_bytes: VOLUME_BYTES,
        burst: Stretch::of_writes(kind.burst_writes),
        preconditioning: Stretch { most_writes: u64::MAX, most_ns: kind.preconditioning_ns },
        long_run: Stretch { most_writes: u64::MAX, most_ns: kind.long_run_ns },
        before_long_run: &|| (),
    };
    // One for each run: what is still to be put in place goes with it.
    let executor = RealExecutor::new().expect("an executor");
    let context = executor.context();
    let buffers = BufferPool::new(64 << 20);
    executor.block_on(async {
        let paced = |path: &PathBuf| {
            let options = OpenOptions { lock: false, ..OpenOptions::default() };
            let drive = executor.open_drive(path, &options).expect("a drive");
            PacedDrive::new(&context, drive, pace) as Rc<dyn Drive>
        };
        let drives: Vec<Rc<dyn Drive>> = files.0.iter().map(paced).collect();
        small_writes::measure(&context, &buffers, "files", &drives, (write_back, true), &load).await.1
    })
}

/// The rate of one stretch.
type Stretched = fn(&Rates) -> f64;

/// Median (least..most).
fn spread(mut values: Vec<f64>, digits: usize) -> String {
    values.sort_by(f64::total_cmp);
    let (middle, least, most) = (values[values.len() / 2], values[0], values[values.len() - 1]);
    format!("{middle:.digits$} ({least:.digits$}..{most:.digits$})")
}

fn main() {
    let base = std::env::var_os("STRIPEWISE_BENCH_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    let directory = base.join("bench-write-back");
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    for kind in KINDS.iter().filter(|kind| only.as_ref().is_none_or(|only| kind.name.contains(only))) {
        let (mut back, mut through) = (Vec::new(), Vec::new());
        for pair in 0..PAIRS {
            // Neither of the two always comes first.
            for write_back in [pair % 2 == 0, pair % 2 != 0] {
                let side = if write_back { &mut back } else { &mut through };
                side.push(rates(&directory, kind, write_back));
            }
        }
        let stretches: [(&str, Stretched, &str); 2] = [
            ("burst", |rates| rates.burst, "to reach 3"),
            ("long run", |rates| rates.long_run, "never less than 1"),
        ];
        for (stretch, of, goal) in stretches {
            let times = back.iter().zip(&through).map(|(back, through)| of(back) / of(through)).collect();
            println!(
                "bench write-back-files {} ({}) {stretch}: back {}/s, through {}/s, times {}, {goal}, {PAIRS} pairs",
                kind.name,
                kind.pace,
                spread(back.iter().map(of).collect(), 0),
                spread(through.iter().map(of).collect(), 0),
                spread(times, 2),
            );
        }
    }
}
