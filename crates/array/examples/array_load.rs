//! Opens an array over given block devices or files in this one process and loads it on command:
//! the engine's performance without any network or file interface. `scripts/bench-md.sh` compares
//! Linux md with it.
//!
//! `array_load LAYOUT plain|checksums SPAN_MIB DRIVE...` creates the array (the contents of the
//! drives are lost), fills it, and prints `ready`. `plain` has neither checksums nor a journal;
//! `checksums` has both. Loads stay within the first SPAN_MIB of it. Then each line of standard
//! input is one command, answered by one line:
//!
//! - `load PATTERN BLOCK_BYTES DEPTH MILLISECONDS`, PATTERN as in fio: `MB_PER_S`
//! - `fail COLUMN`: `failed`
//! - `rebuild COLUMN DRIVE PATTERN BLOCK_BYTES DEPTH` onto a new drive, with that load beside it:
//!   `MB_PER_S_REBUILT MB_PER_S_LOAD`
//!
//! Ends at the end of standard input, or with a message and exit code 1 on the first error.

#[path = "../tests/it/kit/mod.rs"]
#[allow(dead_code)]
mod kit;

use std::cell::Cell;
use std::error::Error;
use std::io::BufRead;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Instant;

use kit::linear::{LinearSpec, SlotInit, rebuild};
use stripewise_array::{Array, ArrayError, ArrayOptions, Member, MemberOptions, NoHost};
use stripewise_drive::{Buffer, BufferPool, Drive, JoinHandle, SplitMix64};
use stripewise_layout::LayoutSpec;
use stripewise_runtime::{OpenOptions, RealExecutor};

const MIB: u64 = 1 << 20;
const USAGE: &str = "usage: array_load LAYOUT plain|checksums SPAN_MIB DRIVE...";
const COMMANDS: &str = "commands: load PATTERN BLOCK_BYTES DEPTH MILLISECONDS, fail COLUMN, rebuild COLUMN DRIVE PATTERN BLOCK_BYTES DEPTH";

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [layout, kind, span_mib, drives @ ..] = arguments.as_slice() else { return Err(USAGE.into()) };
    let checksums = match kind.as_str() {
        "plain" => false,
        "checksums" => true,
        _ => return Err(USAGE.into()),
    };
    let executor = RealExecutor::new()?;
    let mut rig = executor.block_on(Rig::make(&executor, layout, checksums, drives))?;
    rig.span_bytes = span_mib.parse::<u64>()? * MIB;
    if rig.span_bytes > rig.array.capacity_bytes() {
        return Err(format!("the array has only {} MiB", rig.array.capacity_bytes() / MIB).into());
    }
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        println!("{}", executor.block_on(rig.execute(&line?))?);
    }
    rig.members.iter().for_each(|member| member.stop());
    Ok(())
}

/// Pattern, block size and depth of a load.
#[derive(Clone, Copy)]
struct Load {
    is_random: bool,
    is_read: bool,
    block_bytes: u64,
    depth: u64,
}

impl Load {
    fn parse(pattern: &str, block_bytes: &str, depth: &str) -> Result<Self> {
        let (is_random, is_read) = match pattern {
            "read" => (false, true),
            "write" => (false, false),
            "randread" => (true, true),
            "randwrite" => (true, false),
            _ => return Err(format!("`{pattern}` is none of read, write, randread, randwrite").into()),
        };
        Ok(Self { is_random, is_read, block_bytes: block_bytes.parse()?, depth: depth.parse()? })
    }
}

/// A running load: bytes transferred, next sequential block, and whether it has to stop.
#[derive(Default)]
struct Running {
    bytes: Cell<u64>,
    next: Cell<u64>,
    stop: Cell<bool>,
}

struct Rig<'a> {
    executor: &'a RealExecutor,
    spec: LinearSpec,
    array: Array,
    /// Drives of the columns, including replacements.
    members: Vec<Rc<Member>>,
    span_bytes: u64,
}

impl<'a> Rig<'a> {
    async fn make(
        executor: &'a RealExecutor,
        layout: &str,
        checksums: bool,
        drives: &[String],
    ) -> Result<Self> {
        let mut opened = Vec::new();
        let mut smallest_bytes = u64::MAX;
        for path in drives {
            let drive = executor.open_drive(Path::new(path), &shared())?;
            smallest_bytes = smallest_bytes.min(drive.info().capacity_bytes);
            opened.push(new_member(executor, drive));
        }
        let spec = LinearSpec {
            id: 1,
            shape: LayoutSpec::parse(layout)?.resolve(drives.len())?,
            base_bytes: MIB,
            space_bytes: smallest_bytes.saturating_sub(MIB) / MIB * MIB,
            journal_slabs: if checksums { 8 } else { 0 },
            write_back: false,
            checksums,
        };
        let slots = opened.iter().cloned().map(SlotInit::Active).collect();
        let buffers = BufferPool::new(64 << 20);
        let options = ArrayOptions::default();
        let array =
            Array::create(&executor.context(), &buffers, spec.init(slots)?, Rc::new(NoHost), options).await?;
        let data = noise(&array, MIB, 1);
        for at in (0..array.capacity_bytes()).step_by(MIB as usize) {
            let length = (array.capacity_bytes() - at).min(MIB) as usize;
            array.write(at, data.slice(0..length), false).await?;
        }
        array.flush().await?;
        Ok(Self { executor, spec, array, members: opened, span_bytes: 0 })
    }

    async fn execute(&mut self, command: &str) -> Result<String> {
        match command.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["load", pattern, block_bytes, depth, milliseconds] => {
                let load = Load::parse(pattern, block_bytes, depth)?;
                let time_ns = milliseconds.parse::<u64>()?.saturating_mul(1_000_000);
                let start = Instant::now();
                let (running, tasks) = self.start(load);
                self.executor.context().sleep_ns(time_ns).await;
                running.stop.set(true);
                for task in tasks {
                    task.await?;
                }
                Ok(format!("{:.3}", mb_per_s(running.bytes.get(), start)))
            }
            ["fail", column] => {
                let place = column.parse::<usize>()?;
                let member = self.members.get(place).ok_or_else(|| format!("there is no column {place}"))?;
                member.fail("taken out");
                self.array.flush().await?;
                Ok("failed".to_owned())
            }
            ["rebuild", column, path, pattern, block_bytes, depth] => {
                let load = Load::parse(pattern, block_bytes, depth)?;
                self.rebuild(column.parse()?, path, load).await
            }
            _ => Err(COMMANDS.into()),
        }
    }

    async fn rebuild(&mut self, column: usize, path: &str, load: Load) -> Result<String> {
        let drive = self.executor.open_drive(Path::new(path), &shared())?;
        let member = new_member(self.executor, drive);
        let old = self.members.get_mut(column).ok_or_else(|| format!("there is no column {column}"))?;
        std::mem::replace(old, member.clone()).stop();
        let start = Instant::now();
        let (running, tasks) = self.start(load);
        self.spec.attach(&self.array, column, member).await?;
        let report = rebuild(&self.array).await?;
        let (rebuilt, loaded) = (mb_per_s(report.bytes, start), mb_per_s(running.bytes.get(), start));
        running.stop.set(true);
        for task in tasks {
            task.await?;
        }
        if report.lost_blocks > 0 {
            return Err(format!("the rebuild lost {} blocks", report.lost_blocks).into());
        }
        Ok(format!("{rebuilt:.3} {loaded:.3}"))
    }

    /// Keeps as many requests in flight as the load has, until it is stopped. The clock is not read
    /// for each of them: in the guest that is a system call, which costs more than the request.
    fn start(&self, load: Load) -> (Rc<Running>, Vec<JoinHandle<std::result::Result<(), ArrayError>>>) {
        let running = Rc::new(Running::default());
        let blocks = self.span_bytes / load.block_bytes;
        let task = |number| {
            let (array, running) = (self.array.clone(), running.clone());
            self.executor.context().spawn(async move {
                let mut random = SplitMix64::new(number);
                let data = noise(&array, load.block_bytes, number);
                while !running.stop.get() {
                    let index = match load.is_random {
                        true => random.below(blocks),
                        false => running.next.replace(running.next.get() + 1) % blocks,
                    };
                    let at = index * load.block_bytes;
                    if load.is_read {
                        drop(array.read(at, load.block_bytes as usize).await?);
                    } else {
                        array.write(at, data.clone(), false).await?;
                    }
                    running.bytes.set(running.bytes.get() + load.block_bytes);
                }
                Ok(())
            })
        };
        let tasks = (0..load.depth).map(task).collect();
        (running, tasks)
    }
}

/// Without a lock: drives return as replacements while an earlier member may still have them open.
fn shared() -> OpenOptions {
    OpenOptions { lock: false, ..OpenOptions::default() }
}

fn new_member(executor: &RealExecutor, drive: Rc<dyn Drive>) -> Rc<Member> {
    let member = Member::new(&executor.context(), drive, MemberOptions::default());
    // Like md in this comparison: a rebuild does not yield to clients.
    member.set_background_share(1.0);
    member
}

fn noise(array: &Array, bytes: u64, seed: u64) -> Buffer {
    let buffer = array.buffers().allocate(bytes as usize);
    let mut random = SplitMix64::new(seed);
    buffer.with_mut(|bytes| {
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&random.next_u64().to_le_bytes());
        }
    });
    buffer
}

fn mb_per_s(bytes: u64, start: Instant) -> f64 {
    bytes as f64 / 1e6 / start.elapsed().as_secs_f64()
}
