//! Measures a drive: the loads, their duration, and the parameters derived from them.
//!
//! All drives that are given get the same loads at the same time, and the figures are their means:
//! drives that share a host show what each of them has of it. A cell keeps a depth of requests of
//! one size and counts completions from the time when its first ones, and whatever a write cache
//! takes, are over. The parts have fixed shares of the time.
//!
//! Faults expected: drives that fail requests (an error), drives so slow that a cell has few
//! requests (a note).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use stripewise_drive::{BufferPool, Context, Drive, DriveError, IoRequest, SplitMix64};

use super::load::{Load, Places, Running};
use super::parameters::MeasuredParameters;
use super::response::{Response, ResponseTable};
use crate::hdd::ParameterError;

const MIB: u64 = 1 << 20;
/// The smallest drive that loads of several sizes and places fit on.
const LEAST_BYTES: u64 = 8 * MIB;
const BLOCKS: [u64; 3] = [4 << 10, 64 << 10, MIB];
const DEPTHS: [u32; 5] = [1, 4, 8, 16, 32];
const QUICK_DEPTHS: [u32; 3] = [1, 4, 16];
const STREAM_DEPTHS: [u32; 3] = [1, 4, 16];
/// No more than this is in flight at a drive; deeper cells are taken for the deepest that fits.
const MOST_IN_FLIGHT: u64 = 16 * MIB;
/// Completions below which a cell gets a note.
const FEW: u64 = 6;
/// Maximum duration of a cell, as a multiple of its planned time, to reach that number.
const PATIENCE: u64 = 3;

/// Options of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasureOptions {
    /// Approximate duration of the measurement.
    pub seconds: f64,
    /// True for fewer queue depths.
    pub quick: bool,
    /// True if the drive's contents may be overwritten.
    pub may_write: bool,
    /// Random seed.
    pub seed: u64,
}

/// Receives the progress of a measurement.
pub trait MeasureProgress {
    /// Reports the current step, the share of the time that has passed, and the rate of the
    /// previous load in MB/s.
    fn update(&self, what: &str, share: f64, mb_per_s: f64);
}

/// Reason why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The drive is too small for the loads.
    #[error("{label} has {capacity_bytes} bytes; measuring needs {LEAST_BYTES}")]
    TooSmall {
        /// Name of the drive.
        label: String,
        /// Capacity of the drive.
        capacity_bytes: u64,
    },
    /// A request failed.
    #[error("a request failed while {what} was measured")]
    Drive {
        /// The load.
        what: String,
        /// Error message of the drive.
        #[source]
        source: DriveError,
    },
    /// The figures do not describe a valid drive.
    #[error("what was measured describes no drive")]
    Parameters(#[from] ParameterError),
}

/// Result of a measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken {
    /// Measured drive.
    pub parameters: MeasuredParameters,
    /// True if writes were measured; false if they are assumed to be like reads.
    pub wrote: bool,
    /// Share of its first rate that a drive kept under sustained random writes, percent.
    pub steady_state_percent: f64,
    /// Duration of the measurement on the context's clock.
    pub seconds: f64,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// Measures equal drives, all at the same time. Their contents are lost if `may_write`.
pub async fn measure(
    context: &Context,
    drives: &[Rc<dyn Drive>],
    buffers: &BufferPool,
    options: MeasureOptions,
    progress: &dyn MeasureProgress,
) -> Result<Taken, MeasureError> {
    let smallest = drives.iter().min_by_key(|drive| drive.info().capacity_bytes).expect("at least one drive");
    let capacity_bytes = smallest.info().capacity_bytes;
    if capacity_bytes < LEAST_BYTES {
        let label = smallest.info().label.to_string();
        return Err(MeasureError::TooSmall { label, capacity_bytes });
    }
    let bench = Bench {
        context,
        drives,
        buffers,
        options,
        progress,
        capacity_bytes,
        began_ns: context.now_ns(),
        notes: RefCell::default(),
        runs: Cell::new(0),
        mb_per_s: Cell::new(0.0),
    };
    bench.all().await
}

/// Result of a load, as the mean of the drives.
#[derive(Clone, Debug)]
struct Given {
    /// From one completion to the next, on each drive.
    us: f64,
    /// Completion times of the first drive since the start.
    done_ns: Vec<u64>,
    elapsed_ns: u64,
}

struct Bench<'a> {
    context: &'a Context,
    drives: &'a [Rc<dyn Drive>],
    buffers: &'a BufferPool,
    options: MeasureOptions,
    progress: &'a dyn MeasureProgress,
    capacity_bytes: u64,
    began_ns: u64,
    notes: RefCell<Vec<String>>,
    runs: Cell<u64>,
    /// Rate of the last load, all drives together.
    mb_per_s: Cell<f64>,
}

impl Bench<'_> {
    async fn run(&self, what: &str, load: Load) -> Result<Given, MeasureError> {
        let elapsed_s = (self.context.now_ns() - self.began_ns) as f64 / 1e9;
        self.progress.update(what, (elapsed_s / self.options.seconds).min(1.0), self.mb_per_s.get());
        let start_ns = self.context.now_ns();
        let least_ns = (load.seconds * 1e9) as u64;
        let wanted = load.ramp + FEW;
        // Other places for each load, or a cache would know those of the one before.
        let seed = SplitMix64::new(self.options.seed.wrapping_add(self.runs.replace(self.runs.get() + 1)))
            .next_u64();
        let mut tasks = Vec::new();
        let mut all = Vec::new();
        for (number, drive) in self.drives.iter().enumerate() {
            let from = match load.places {
                Places::Stream { from_bytes } => from_bytes,
                _ => 0,
            };
            let running = Rc::new(Running {
                load,
                capacity_bytes: self.capacity_bytes,
                random: RefCell::new(SplitMix64::new(seed ^ number as u64)),
                at: Cell::new(from),
                back: Cell::new(false),
                sent: Cell::new(0),
                done: RefCell::default(),
                failed: RefCell::default(),
            });
            all.push(running.clone());
            for _ in 0..load.depth {
                let (running, drive) = (running.clone(), drive.clone());
                let (context, buffers) = (self.context.clone(), self.buffers.clone());
                tasks.push(self.context.spawn(async move {
                    loop {
                        let passed_ns = context.now_ns() - start_ns;
                        let few = (running.done.borrow().len() as u64) < wanted;
                        if passed_ns >= least_ns && (!few || passed_ns >= least_ns * PATIENCE) {
                            return;
                        }
                        let (offset, block, write) = running.next();
                        let buffer = buffers.allocate(block as usize);
                        let request = match write {
                            true => IoRequest::write(offset, buffer, load.forced),
                            false => IoRequest::read(offset, buffer),
                        };
                        if let Err(error) = drive.submit(request).await {
                            running.failed.borrow_mut().get_or_insert(error);
                            return;
                        }
                        running.done.borrow_mut().push(context.now_ns() - start_ns);
                    }
                }));
            }
        }
        for task in tasks {
            task.await;
        }
        for running in &all {
            if let Some(source) = running.failed.take() {
                return Err(MeasureError::Drive { what: what.to_owned(), source });
            }
        }
        if load.write || load.both {
            self.flush(what).await?;
        }
        let each = all.iter().filter_map(|running| {
            let done_ns = running.done.borrow();
            // Caches take the first writes, however many that are.
            let settling = if load.write || load.both { done_ns.len() as u64 / 2 } else { 0 };
            interval_us(&done_ns, load.ramp.max(settling))
        });
        let each: Vec<f64> = each.collect();
        if each.len() < all.len() {
            self.notes
                .borrow_mut()
                .push(format!("{what}: too few requests for a figure; its time is that of all"));
        }
        let elapsed_ns = self.context.now_ns() - start_ns;
        let us = match each.is_empty() {
            true => elapsed_ns as f64 / 1e3 / all[0].done.borrow().len().max(1) as f64,
            false => each.iter().sum::<f64>() / each.len() as f64,
        };
        let bytes = (load.blocks[0] + load.blocks[1]) as f64 / 2.0;
        self.mb_per_s.set(bytes * self.drives.len() as f64 / us.max(0.001));
        let done_ns = all[0].done.take();
        Ok(Given { us: us.max(0.001), done_ns, elapsed_ns })
    }

    async fn flush(&self, what: &str) -> Result<f64, MeasureError> {
        let start_ns = self.context.now_ns();
        let flushes: Vec<_> = self.drives.iter().map(|drive| drive.submit(IoRequest::flush())).collect();
        for flush in flushes {
            flush.await.map_err(|source| MeasureError::Drive { what: what.to_owned(), source })?;
        }
        Ok((self.context.now_ns() - start_ns) as f64 / 1e3)
    }

    async fn all(self) -> Result<Taken, MeasureError> {
        let options = self.options;
        let depths: &[u32] = if options.quick { &QUICK_DEPTHS } else { &DEPTHS };
        let write = options.may_write;
        // Shares of the time, as numbers of cells that are equally long.
        let cells = BLOCKS.len() * (depths.len() + STREAM_DEPTHS.len()) * if write { 2 } else { 1 };
        let others = if write { 35 } else { 19 };
        let each_s = options.seconds / (cells + others) as f64;
        if write {
            self.fill(4.0 * each_s).await?;
        }
        let whole = Places::Random { span_bytes: self.capacity_bytes };
        let sequential_read = self.table("sequential reads", false, None, &STREAM_DEPTHS, 0, each_s).await?;
        let random_read = self.table("random reads", false, Some(whole), depths, 0, each_s).await?;
        let seek = self.seeks(each_s).await?;
        let zones = self.zones(each_s / 2.0).await?;
        let (read_cache_kib, read_cache_us) = self.read_cache(&seek, each_s / 2.0).await?;
        let overlap_percent = self.overlap(&random_read, 2.0 * each_s).await?;
        let mut found = MeasuredParameters {
            capacity_bytes: self.capacity_bytes,
            queue_depth: self.drives[0].info().queue_depth,
            queue_bytes: self.drives[0].info().queue_bytes,
            longest_request_bytes: self.drives[0].info().max_request_bytes,
            gap_bytes: self.drives[0].info().gap_bytes,
            random_write: random_read.clone(),
            sequential_write: sequential_read.clone(),
            random_read,
            sequential_read,
            seek,
            zones,
            read_cache_kib,
            read_cache_us,
            write_burst_kib: 0,
            write_burst_us: 0.0,
            flush_us: 0.0,
            forced_write_us: 0.0,
            overlap_percent,
            mixing: vec![(4096.0, 100.0)],
        };
        let mut steady_state_percent = 100.0;
        if write {
            let burst = self.burst(6.0 * each_s).await?;
            (found.write_burst_kib, found.write_burst_us) = (burst.requests * 4, burst.us);
            steady_state_percent = burst.steady_percent;
            let ramp = burst.requests;
            found.random_write = self.table("random writes", true, Some(whole), depths, ramp, each_s).await?;
            found.sequential_write =
                self.table("sequential writes", true, None, &STREAM_DEPTHS, ramp.min(8), each_s).await?;
            let forced = Load { write: true, forced: true, ..Load::of(4096, 1, whole, each_s) };
            found.forced_write_us = self.run("forced writes", forced).await?.us;
            found.flush_us = self.flush("flushes").await?;
            found.mixing = self.mixing(&found, ramp, each_s).await?;
        }
        found.check()?;
        Ok(Taken {
            parameters: found,
            wrote: write,
            steady_state_percent,
            seconds: (self.context.now_ns() - self.began_ns) as f64 / 1e9,
            notes: self.notes.take(),
        })
    }

    /// A drive that was never written answers otherwise: as much of it as fits the time is written
    /// once.
    async fn fill(&self, seconds: f64) -> Result<(), MeasureError> {
        let start_ns = self.context.now_ns();
        let mut at = 0;
        while at < self.capacity_bytes && self.context.now_ns() - start_ns < (seconds * 1e9) as u64 {
            let passed_us = (self.context.now_ns() - start_ns).max(1) as f64 / 1e3;
            self.progress.update("filling", 0.0, at as f64 * self.drives.len() as f64 / passed_us);
            let mut writes = Vec::new();
            for _ in 0..8 {
                let length = MIB.min(self.capacity_bytes - at);
                let write = |drive: &Rc<dyn Drive>| {
                    let buffer = self.buffers.allocate(length as usize);
                    drive.submit(IoRequest::write(at, buffer, false))
                };
                writes.extend(self.drives.iter().filter(|_| length > 0).map(write));
                at += length;
            }
            for write in writes {
                write.await.map_err(|source| MeasureError::Drive { what: "filling".into(), source })?;
            }
        }
        if at < self.capacity_bytes {
            let share = 100.0 * at as f64 / self.capacity_bytes as f64;
            self.notes.borrow_mut().push(format!(
                "{share:.0} % of the drive was written before; where the rest never was, its figures are those of an empty drive"
            ));
        }
        self.flush("filling").await.map(drop)
    }

    /// Streams where no places are given.
    async fn table(
        &self,
        what: &str,
        write: bool,
        places: Option<Places>,
        depths: &[u32],
        ramp: u64,
        seconds: f64,
    ) -> Result<ResponseTable, MeasureError> {
        let mut cells: Vec<Response> = Vec::new();
        for block_bytes in BLOCKS {
            for &depth in depths {
                let fits = (MOST_IN_FLIGHT / block_bytes).max(1) as u32;
                let before = cells.last().filter(|cell| cell.block_bytes == block_bytes && depth > fits);
                let us = match before {
                    Some(deepest) => deepest.us,
                    None => {
                        // Each begins where none of those before has been.
                        let from_bytes = (self.runs.get() * 64 * MIB) % (self.capacity_bytes / 8) / MIB * MIB;
                        let places = places.unwrap_or(Places::Stream { from_bytes });
                        let load = Load { write, ..Load::of(block_bytes, depth, places, seconds) };
                        let load = Load { ramp: load.ramp + ramp, ..load };
                        self.run(&format!("{what} of {} KiB, depth {depth}", block_bytes >> 10), load)
                            .await?
                            .us
                    }
                };
                cells.push(Response { block_bytes, depth, us });
            }
        }
        Ok(ResponseTable::new(what, &cells)?)
    }

    async fn seeks(&self, seconds: f64) -> Result<Vec<(f64, f64)>, MeasureError> {
        let whole = self.capacity_bytes as f64;
        let mut distances: Vec<f64> =
            [64.0 * 1024.0, 1e6].into_iter().filter(|distance| *distance < whole / 64.0).collect();
        distances.extend([1.0 / 64.0, 1.0 / 16.0, 0.25, 0.5, 0.9].map(|share| share * whole));
        let mut points = Vec::new();
        for distance in distances {
            let places = Places::Steps { distance_bytes: distance as u64 };
            let given = self.run("seeks", Load::of(4096, 1, places, seconds)).await?;
            points.push((distance.round(), given.us));
        }
        Ok(points)
    }

    async fn zones(&self, seconds: f64) -> Result<Vec<(f64, f64)>, MeasureError> {
        let mut points = Vec::new();
        for step in 0..6 {
            let place = f64::from(step) * 0.18;
            let from_bytes = (place * self.capacity_bytes as f64) as u64 / MIB * MIB;
            let load = Load::of(MIB, 4, Places::Stream { from_bytes }, seconds);
            points.push((place, MIB as f64 / self.run("zones", load).await?.us));
        }
        Ok(points)
    }

    /// The largest working set, of some, that is answered in much less than the shortest way takes.
    async fn read_cache(&self, seek: &[(f64, f64)], seconds: f64) -> Result<(u64, f64), MeasureError> {
        let uncached_us = seek.iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
        let (mut kib, mut cached_us) = (0, 0.0);
        for working_set in [256 << 10, 2 * MIB, 16 * MIB, 128 * MIB] {
            if working_set > self.capacity_bytes / 4 {
                break;
            }
            let blocks = working_set / MIB.min(working_set);
            let once =
                Load { ramp: 0, ..Load::of(MIB.min(working_set), 1, Places::Stream { from_bytes: 0 }, 0.0) };
            // Until it was gone through once, or the time is over.
            let once = Load { ramp: blocks.saturating_sub(FEW), ..once };
            self.run("working sets", Load { seconds: seconds / 2.0, ..once }).await?;
            let load = Load::of(4096, 1, Places::Random { span_bytes: working_set }, seconds / 2.0);
            let us = self.run("working sets", load).await?.us;
            if us > uncached_us * 0.4 {
                break;
            }
            kib = working_set >> 10;
            cached_us = if cached_us == 0.0 { us } else { cached_us };
        }
        Ok((kib, cached_us))
    }

    /// Short and long requests in turn: whether their times add up, or one hides the other.
    async fn overlap(&self, random_read: &ResponseTable, seconds: f64) -> Result<f64, MeasureError> {
        let depth = 8;
        let places = Places::Random { span_bytes: self.capacity_bytes };
        let load = Load { blocks: [4096, MIB], ..Load::of(4096, depth, places, seconds) };
        let mixed_us = self.run("mixed sizes", load).await?.us;
        let (short_us, long_us) = (random_read.us(4096, depth), random_read.us(MIB, depth));
        let serial_us = (short_us + long_us) / 2.0;
        let hidden_us = short_us.max((long_us + long_us / 256.0) / 2.0);
        match serial_us - hidden_us > serial_us * 0.03 {
            true => Ok((100.0 * (serial_us - mixed_us) / (serial_us - hidden_us)).clamp(0.0, 100.0).round()),
            false => Ok(0.0),
        }
    }

    /// Reads and writes in turn, by size: what they take of what each kind takes by itself,
    /// percent.
    async fn mixing(
        &self,
        found: &MeasuredParameters,
        ramp: u64,
        seconds: f64,
    ) -> Result<Vec<(f64, f64)>, MeasureError> {
        let mut points = Vec::new();
        for block in BLOCKS {
            let depth = 16.min(MOST_IN_FLIGHT / block) as u32;
            let places = Places::Random { span_bytes: self.capacity_bytes };
            let load = Load { both: true, ..Load::of(block, depth, places, seconds) };
            let load = Load { ramp: load.ramp + ramp, ..load };
            let mixed_us = self.run("reads and writes", load).await?.us;
            let apart_us = (found.random_read.us(block, depth) + found.random_write.us(block, depth)) / 2.0;
            points.push((block as f64, (100.0 * mixed_us / apart_us).clamp(10.0, 10_000.0)));
        }
        Ok(points)
    }

    /// Short writes to an idle drive: how many it takes at once, and what it can keep up.
    async fn burst(&self, seconds: f64) -> Result<Burst, MeasureError> {
        let places = Places::Random { span_bytes: self.capacity_bytes };
        let load = Load { write: true, ramp: 0, ..Load::of(4096, 4, places, seconds) };
        let given = self.run("write burst and steady state", load).await?;
        Ok(Burst::of(&given.done_ns, given.elapsed_ns))
    }
}

/// Short writes from idle.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Burst {
    requests: u64,
    us: f64,
    steady_percent: f64,
}

impl Burst {
    /// The second half is steady; what the first one had beyond that came first, in a burst.
    fn of(done_ns: &[u64], elapsed_ns: u64) -> Self {
        let none = Self { requests: 0, us: 0.0, steady_percent: 100.0 };
        let last_ns = done_ns.last().copied().unwrap_or(0).min(elapsed_ns);
        if done_ns.len() < 16 || last_ns == 0 {
            return none;
        }
        let half = done_ns.partition_point(|at_ns| *at_ns <= last_ns / 2);
        let steady_ns = last_ns as f64 / 2.0 / (done_ns.len() - half).max(1) as f64;
        let expected = last_ns as f64 / 2.0 / steady_ns;
        let steady_percent = (100.0 * expected / half.max(1) as f64).clamp(0.0, 100.0);
        let requests = (half as f64 - expected).max(0.0) as usize;
        let us = match requests {
            0 => return none,
            some => done_ns[some.min(done_ns.len() - 1)] as f64 / some as f64 / 1e3,
        };
        // A burst must stand out: many requests, and each much faster.
        match requests >= 8 && us * 1e3 < steady_ns / 2.0 {
            true => Self { requests: requests as u64, us, steady_percent },
            false => Self { steady_percent, ..none },
        }
    }
}

/// Mean time between completions behind the ramp; `None` where there are not two of them.
fn interval_us(done_ns: &[u64], ramp: u64) -> Option<f64> {
    let ramp = ramp as usize;
    let (first, last) = (done_ns.get(ramp.saturating_sub(1))?, done_ns.last()?);
    let counted = done_ns.len().checked_sub(ramp.max(1))?;
    (counted > 0).then(|| (last - first) as f64 / counted as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_what_comes_before_the_steady_rate() {
        let mut done_ns: Vec<u64> = (1..=100).map(|number| number * 1000).collect();
        done_ns.extend((1..=200).map(|number| 100_000 + number * 1_000_000));
        let burst = Burst::of(&done_ns, 201_000_000);
        assert!((95..=105).contains(&burst.requests), "{burst:?}");
        assert!(burst.us < 2.0 && burst.steady_percent < 70.0, "{burst:?}");
        let steady: Vec<u64> = (1..=300).map(|number| number * 1_000_000).collect();
        assert_eq!(Burst::of(&steady, 300_000_000).requests, 0);
    }

    #[test]
    fn the_ramp_does_not_count() {
        assert_eq!(interval_us(&[9_000, 10_000, 12_000, 14_000], 2), Some(2.0));
        assert_eq!(interval_us(&[9_000, 10_000], 2), None);
        assert_eq!(interval_us(&[], 0), None);
    }
}
