//! Prints what a journal gives to small writes, in virtual time on modelled drives: 4 KiB random writes at depth 32 into a RAID 5
//! over four drives with two journal drives of the same kind, acknowledged by the journal or in place; and what a change of
//! the record of a pool of sixty large drives takes.

#[path = "../tests/pool_support/mod.rs"]
mod pool_support;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use futures_util::future::join_all;
use pool_support::{Life, MIB, spec, volume_spec};
use stripewise_drive::{BufferPool, Drive, ModelDrive, ModelSpec, NullDrive, SplitMix64};
use stripewise_engine::{Pool, PoolSpec, VolumeSpec};

const TB: u64 = 1_000_000_000_000;
const BLOCK: u64 = 4096;
/// Written before, and then at random.
const SPAN: u64 = 256 * MIB;
const DEPTH: usize = 32;
/// A burst that fits the journal.
const BURST: u64 = 4_000;
/// Long enough for the journal to be full most of the time.
const LONG: u64 = 120_000;

fn drives(life: &Life, count: usize, model: ModelSpec, bytes: u64) -> Vec<Rc<dyn Drive>> {
    let one = |index: usize| {
        let label = format!("model{index}");
        ModelDrive::new(&life.context, &label, bytes, model, NullDrive::new(&label, bytes)) as Rc<dyn Drive>
    };
    (0..count).map(one).collect()
}

/// Writes per second of virtual time: of a burst, and of the second half of a long run.
fn rates(model: ModelSpec, write_back: bool, checksums: bool) -> (f64, f64) {
    let life = Life::new();
    let buffers = BufferPool::phantom();
    life.run(async {
        let all = drives(&life, 6, model, TB);
        let pool = PoolSpec { journals: all[4..].to_vec(), ..spec("model", &all[..4], &[]) };
        let pool = Pool::create(&life.context, &buffers, pool).await.expect("a pool");
        let volume = VolumeSpec {
            write_back: Some(write_back),
            checksums: Some(checksums),
            ..volume_spec("data", "raid5", Some(2 * SPAN))
        };
        let volume = pool.create_volume(volume).await.expect("a volume");
        volume.write(0, buffers.allocate(SPAN as usize), false).await.expect("room");
        volume.flush().await.expect("flushed");
        let random = RefCell::new(SplitMix64::new(1));
        let left = Cell::new(0);
        let client = || async {
            while left.get() > 0 {
                left.set(left.get() - 1);
                let at = random.borrow_mut().below(SPAN / BLOCK) * BLOCK;
                volume.write(at, buffers.allocate(BLOCK as usize), false).await.expect("written");
            }
        };
        let run = async |writes: u64| {
            left.set(writes);
            let began_ns = life.context.now_ns();
            join_all((0..DEPTH).map(|_| client())).await;
            writes as f64 * 1e9 / (life.context.now_ns() - began_ns) as f64
        };
        let burst = run(BURST).await;
        run(LONG / 2).await;
        let steady = run(LONG / 2).await;
        pool.close().await.expect("closed");
        (burst, steady)
    })
}

/// Milliseconds of virtual time that a small change of the record takes: sixty drives of 20 TB in a RAID 60 of six groups.
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

fn main() {
    println!("drives                   checksums  writes per second, burst      in the long run");
    println!("                                    back   through   times       back   through   times");
    let flash = ModelSpec { latency_ns: 100_000, bytes_per_second: 500_000_000, queue_depth: 32 };
    let disk = ModelSpec { latency_ns: 8_000_000, bytes_per_second: 200_000_000, queue_depth: 4 };
    for (name, model) in [("0.1 ms, 500 MB/s, 32", flash), ("8 ms, 200 MB/s, 4", disk)] {
        for checksums in [true, false] {
            let (back, through) = (rates(model, true, checksums), rates(model, false, checksums));
            println!(
                "{name:23}  {:9}  {:9.0} {:9.0} {:7.2}  {:9.0} {:9.0} {:7.2}",
                if checksums { "on" } else { "off" },
                back.0,
                through.0,
                back.0 / through.0,
                back.1,
                through.1,
                back.1 / through.1
            );
        }
    }
    let (made, commit) = commit_ms();
    println!(
        "60 drives of 20 TB (5 ms, 250 MB/s): made in {made:.0} ms; the longest of 20 small changes recorded in {commit:.1} ms"
    );
}
