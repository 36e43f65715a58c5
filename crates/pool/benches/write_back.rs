//! Prints the effect of a journal on small writes, in virtual time on modelled drives
//! (`write_back_files.rs`: on paced files): 4 KiB random writes at depth 32 into a RAID 5 over four
//! drives with two journal drives of the same kind, acknowledged from the journal or in place; and
//! the time of a manifest commit in a pool of sixty large drives.

#[path = "small_writes/counted.rs"]
mod counted;
#[path = "../tests/it/kit/mod.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod kit;
mod small_writes;

use std::cell::Cell;
use std::rc::Rc;

use counted::{Count, CountedDrive, Counts};
use kit::pool::{Life, MIB, spec, volume_spec};

use small_writes::{ALL_DRIVES, DATA_DRIVES, Load, Rates, Stretch};
use stripewise_drive::{BufferPool, Drive, ModelDrive, ModelSpec, NullDrive, Pace, PacedDrive};
use stripewise_pool::Pool;

const TB: u64 = 1_000_000_000_000;
/// A burst that fits the journal.
const BURST: u64 = 4_000;
/// Long enough to keep the journal full most of the time; the second half counts.
const LONG: u64 = 120_000;

fn drives(life: &Life, count: usize, model: ModelSpec, bytes: u64) -> Vec<Rc<dyn Drive>> {
    let one = |index: usize| {
        let label = format!("model{index}");
        ModelDrive::new(&life.context, &label, bytes, model, NullDrive::new(&label, bytes)) as Rc<dyn Drive>
    };
    (0..count).map(one).collect()
}

/// Writes per second of virtual time on modelled drives.
fn modelled_rates(model: ModelSpec, write_back: bool, checksums: bool) -> Rates {
    let life = Life::new();
    let load = Load {
        volume_bytes: 512 * MIB,
        burst: Stretch::of_writes(BURST),
        preconditioning: Stretch::of_writes(LONG / 2),
        long_run: Stretch::of_writes(LONG / 2),
        before_long_run: &|| (),
    };
    rates(&life, &drives(&life, ALL_DRIVES, model, TB), (write_back, checksums), &load)
}

/// The same on paced drives, with the size and the fill that `write_back_files.rs` would use if it
/// had the time.
fn paced_rates(pace: Pace, write_back: bool, checksums: bool) -> Rates {
    let life = Life::new();
    let one = |index: usize| {
        let drive = NullDrive::new(&format!("paced{index}"), 2048 * MIB);
        CountedDrive::new(PacedDrive::new(&life.context, drive, pace))
    };
    let counted: Vec<Rc<CountedDrive>> = (0..ALL_DRIVES).map(one).collect();
    let drives: Vec<Rc<dyn Drive>> = counted.iter().map(|drive| drive.clone() as Rc<dyn Drive>).collect();
    let before = Cell::default();
    let load = Load {
        volume_bytes: 4608 * MIB,
        burst: Stretch::of_writes(600),
        preconditioning: Stretch { most_writes: u64::MAX, most_ns: 0 },
        long_run: Stretch { most_writes: LONG, most_ns: 120_000_000_000 },
        before_long_run: &|| before.set(all_counts(&counted)),
    };
    let rates = rates(&life, &drives, (write_back, checksums), &load);
    let after = all_counts(&counted);
    let of = |which: usize| after[which].since(before.get()[which]);
    let per_write = |count: Count| {
        let writes = rates.long_run_writes as f64;
        format!("{:.2} ({:.1} KiB)", count.requests as f64 / writes, count.bytes as f64 / 1024.0 / writes)
    };
    for (name, counts) in [("data drives", of(0)), ("journal drives", of(1))] {
        println!(
            "  {name}: reads {}, writes {}, pages read {}, written {}, flushes {}",
            per_write(counts.reads),
            per_write(counts.writes),
            per_write(counts.page_reads),
            per_write(counts.page_writes),
            per_write(counts.flushes),
        );
    }
    rates
}

/// Total counts of the data drives, and of the journal drives.
fn all_counts(drives: &[Rc<CountedDrive>]) -> [Counts; 2] {
    let (data, journals) = drives.split_at(DATA_DRIVES);
    [data, journals]
        .map(|drives| drives.iter().map(|drive| drive.counts()).fold(Counts::default(), Counts::plus))
}

fn rates(life: &Life, drives: &[Rc<dyn Drive>], how: (bool, bool), load: &Load<'_>) -> Rates {
    let buffers = BufferPool::phantom();
    life.run(async {
        let (pool, rates) = small_writes::measure(&life.context, &buffers, "model", drives, how, load).await;
        pool.close().await.expect("closed");
        rates
    })
}

/// Virtual time of creating a pool and volume, and of the slowest small commit, in milliseconds:
/// sixty drives of 20 TB in a RAID 60 of six groups.
fn commit_ms() -> (f64, f64) {
    let life = Life::new();
    let buffers = BufferPool::phantom();
    life.run(async {
        let disk = ModelSpec { latency_ns: 5_000_000, bytes_per_second: 250_000_000, queue_depth: 32 };
        let all = drives(&life, 60, disk, 20 * TB);
        let began_ns = life.context.now_ns();
        let pool = Pool::create(&life.context, &buffers, spec("large", &all, &[])).await.expect("a pool");
        let mut volume = volume_spec("data", "raid60", None);
        volume.layout.groups = Some(6);
        pool.create_volume(volume).await.expect("a volume");
        let made_ns = life.context.now_ns() - began_ns;
        let mut longest_ns = 0;
        for percent in 1..=20 {
            let began_ns = life.context.now_ns();
            pool.set_rebuild_priority(percent).await.expect("recorded");
            longest_ns = longest_ns.max(life.context.now_ns() - began_ns);
        }
        pool.close().await.expect("closed");
        (made_ns as f64 / 1e6, longest_ns as f64 / 1e6)
    })
}

fn print_rates(name: &str, rates: impl Fn(bool, bool) -> Rates) {
    for checksums in [true, false] {
        let (back, through) = (rates(true, checksums), rates(false, checksums));
        println!(
            "{name:23}  {:9}  {:9.0} {:9.0} {:7.2}  {:9.0} {:9.0} {:7.2}",
            if checksums { "on" } else { "off" },
            back.burst,
            through.burst,
            back.burst / through.burst,
            back.long_run,
            through.long_run,
            back.long_run / through.long_run
        );
    }
}

fn main() {
    let only_paced = std::env::var_os("ONLY_PACED").is_some();
    println!("drives                   checksums  writes per second, burst      in the long run");
    println!("                                    back   through   times       back   through   times");
    let flash = ModelSpec { latency_ns: 100_000, bytes_per_second: 500_000_000, queue_depth: 32 };
    let disk = ModelSpec { latency_ns: 8_000_000, bytes_per_second: 200_000_000, queue_depth: 4 };
    let modelled = [("0.1 ms, 500 MB/s, 32", flash), ("8 ms, 200 MB/s, 4", disk)];
    for (name, model) in modelled.into_iter().filter(|_| !only_paced) {
        print_rates(name, |write_back, checksums| modelled_rates(model, write_back, checksums));
    }
    for pace in ["500MB/s,10000iops", "200MB/s,125iops"] {
        let parsed: Pace = pace.parse().expect("a pace");
        print_rates(pace, |write_back, checksums| paced_rates(parsed, write_back, checksums));
    }
    if only_paced {
        return;
    }
    let (made, commit) = commit_ms();
    println!(
        "60 drives of 20 TB (5 ms, 250 MB/s): made in {made:.0} ms; the longest of 20 small changes recorded in {commit:.1} ms"
    );
}
