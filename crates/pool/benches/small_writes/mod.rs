//! Workload of the write-back benchmarks, for any drives and clock: 4 KiB random writes at depth 32
//! into a RAID 5 over four drives with two journal drives of the same kind; after an idle period a
//! burst that fits the journal, then a sustained load.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use futures_util::future::join_all;
use stripewise_drive::{BufferPool, Context, Drive, SplitMix64};
use stripewise_pool::{Pool, PoolSpec, Volume, VolumeSpec};

use crate::kit::pool::{MIB, spec, volume_spec};

/// Drives of the RAID 5, followed by those of the journal.
pub const DATA_DRIVES: usize = 4;
pub const ALL_DRIVES: usize = DATA_DRIVES + 2;

const BLOCK: u64 = 4096;
/// Bytes written sequentially first, and then at random.
const SPAN: u64 = 256 * MIB;
const PIECE: u64 = 4 * MIB;
const DEPTH: usize = 32;
/// Time in which an idle array destages everything and empties its journal.
const QUIET_NS: u64 = 12_000_000_000;

/// Amount of writes; each stretch ends when one of its limits is reached.
pub struct Load<'a> {
    /// The journal's size is proportional to it.
    pub volume_bytes: u64,
    /// Writes that fit the journal.
    pub burst: Stretch,
    /// Writes that fill the journal.
    pub preconditioning: Stretch,
    pub long_run: Stretch,
    pub before_long_run: &'a dyn Fn(),
}

#[derive(Clone, Copy)]
pub struct Stretch {
    pub most_writes: u64,
    pub most_ns: u64,
}

impl Stretch {
    pub fn of_writes(most_writes: u64) -> Self {
        Self { most_writes, most_ns: u64::MAX }
    }
}

/// Writes per second.
pub struct Rates {
    pub burst: f64,
    pub long_run: f64,
    /// Number of writes.
    #[allow(dead_code)] // only one of the two benchmarks counts requests per write
    pub long_run_writes: u64,
}

/// Creates a pool and measures it. The pool is not closed: on slow drives destaging everything may
/// take longer than the whole measurement.
pub async fn measure(
    context: &Context,
    buffers: &BufferPool,
    name: &str,
    drives: &[Rc<dyn Drive>],
    (write_back, checksums): (bool, bool),
    load: &Load<'_>,
) -> (Pool, Rates) {
    let (data, journals) = drives.split_at(DATA_DRIVES);
    let pool = PoolSpec { journals: journals.to_vec(), ..spec(name, data, &[]) };
    let pool = Pool::create(context, buffers, pool).await.expect("a pool");
    let volume = VolumeSpec {
        write_back: Some(write_back),
        checksums: Some(checksums),
        ..volume_spec("data", "raid5", Some(load.volume_bytes))
    };
    let volume = pool.create_volume(volume).await.expect("a volume");
    let piece = buffers.allocate_zeroed(PIECE as usize);
    for at in (0..SPAN).step_by(PIECE as usize) {
        volume.write(at, piece.clone(), false).await.expect("room");
    }
    volume.flush().await.expect("flushed");
    context.sleep_ns(QUIET_NS).await;
    let random = RefCell::new(SplitMix64::new(1));
    let (burst, _) = rate(context, &volume, &random, load.burst).await;
    rate(context, &volume, &random, load.preconditioning).await;
    (load.before_long_run)();
    let (long_run, long_run_writes) = rate(context, &volume, &random, load.long_run).await;
    (pool, Rates { burst, long_run, long_run_writes })
}

/// Writes per second, and the number of writes.
async fn rate(
    context: &Context,
    volume: &Volume,
    random: &RefCell<SplitMix64>,
    stretch: Stretch,
) -> (f64, u64) {
    let (began_ns, written) = (context.now_ns(), Cell::new(0));
    let end_ns = began_ns.saturating_add(stretch.most_ns);
    let client = async || {
        let data = volume.buffers().allocate_zeroed(BLOCK as usize);
        while written.get() < stretch.most_writes && context.now_ns() < end_ns {
            written.set(written.get() + 1);
            let at = random.borrow_mut().below(SPAN / BLOCK) * BLOCK;
            volume.write(at, data.clone(), false).await.expect("written");
        }
    };
    join_all((0..DEPTH).map(|_| client())).await;
    (written.get() as f64 * 1e9 / (context.now_ns() - began_ns) as f64, written.get())
}
