//! Random overwrites of 4 KiB on a log over four modelled disks (RAID 5), in virtual time:
//! requests per second and blocks written per client block in the steady state, beside RAID 0 in
//! place on the same disks. The figures in `docs/internals/log-volumes.md` are from here.
//!
//! usage: `cargo run --example random_overwrites -- [FULL_PERCENT...]`
//!
//! The disks are short (about 1 GB each), so seeks are shorter than on whole ones, for both.

use std::cell::Cell;
use std::rc::Rc;

use stripewise_array::{Class, Member, MemberOptions};
use stripewise_drive::{Buffer, BufferPool, Context, Drive, IoRequest, MemoryDrive, SplitMix64};
use stripewise_layout::{LayoutSpec, MemberSet};
use stripewise_log::{Columns, Log, LogInit, LogOptions, LogSpace, SlotRoots};
use stripewise_model::catalogue::drive;
use stripewise_model::modelled::ModelledDrive;
use stripewise_runtime::VirtualExecutor;

const DISKS: u64 = 4;
const DISK: &str = "mg08ada400e";
const SLOT_BYTES: u64 = 1 << 20;
const SEGMENT_BYTES: u64 = 4 << 20;
const SEGMENTS: u64 = 640;
const CLIENTS: u64 = 64;

fn main() {
    let percents: Vec<u64> =
        std::env::args().skip(1).map(|text| text.parse().expect("a percentage")).collect();
    let percents = if percents.is_empty() { vec![70, 80, 90] } else { percents };
    let in_place = raid0();
    println!("RAID 0 in place: {in_place:.0} writes/s");
    for percent in percents {
        let (rate, written, full) = log_at(percent);
        println!(
            "log, RAID 5, {percent} % full ({:.1} % live): {rate:.0} writes/s ({:.0} x), {written:.2} blocks written per block",
            100.0 * full,
            rate / in_place
        );
    }
}

fn member_bytes() -> u64 {
    // Three strips of data in a stripe, and the staging area.
    (SEGMENTS + 12) * (SEGMENT_BYTES / 3).next_multiple_of(128 << 10)
}

fn disks(context: &Context) -> Vec<Rc<Member>> {
    let entry = drive(DISK).expect("in the catalogue");
    (0..DISKS)
        .map(|number| {
            let memory = MemoryDrive::new("contents", member_bytes() + 2 * SLOT_BYTES);
            let modelled = ModelledDrive::new(context, "disk", entry, memory, number).expect("a valid entry");
            Member::new(context, modelled as Rc<dyn Drive>, MemberOptions::default())
        })
        .collect()
}

/// Random writes per second without parity, in place.
fn raid0() -> f64 {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let members = disks(&context);
        let began_ns = context.now_ns();
        let writes = 4000;
        let tasks: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let members = members.clone();
                context.spawn(async move {
                    let mut random = SplitMix64::new(number);
                    for _ in 0..writes / CLIENTS {
                        let member = &members[random.below(DISKS) as usize];
                        let at = random.below(member_bytes() / 4096) * 4096;
                        let request = IoRequest::write(at, Buffer::phantom(4096), false);
                        member.submit(Class::Foreground, request).await.expect("a write");
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        writes as f64 * 1e9 / (context.now_ns() - began_ns) as f64
    })
}

/// Writes per second, blocks written per client block, and the share of the segments that is live.
fn log_at(percent: u64) -> (f64, f64, f64) {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let members = disks(&context);
        let spec =
            LayoutSpec { interleave_bytes: Some(64 << 10), ..LayoutSpec::parse("raid5").expect("known") };
        let shape = spec.resolve(DISKS as usize).expect("possible");
        let space = LogSpace { shape, start_bytes: 2 * SLOT_BYTES, member_bytes: member_bytes() };
        let columns = Columns::whole(members);
        let roots = SlotRoots::new(columns.clone(), 1, shape, 0, SLOT_BYTES).expect("a layout");
        let init = LogInit { space, columns, missing: MemberSet::EMPTY, roots };
        let options = LogOptions {
            segment_bytes: SEGMENT_BYTES,
            reserve: 1.0 - percent as f64 / 100.0,
            ..LogOptions::default()
        };
        let buffers = BufferPool::new(64 << 20);
        let probe = Log::create(&context, &buffers, init.clone(), 1, 1 << 20, options).await.expect("a log");
        let capacity = probe.client_bytes();
        probe.close().await.expect("closing");
        let log = Log::create(&context, &buffers, init, 1, capacity, options).await.expect("a log");
        let blocks = capacity / 4096;
        let piece = Buffer::from_bytes(&[7; 1 << 18]);
        for at in (0..capacity).step_by(1 << 18) {
            let length = (capacity - at).min(1 << 18) as usize;
            log.write(at, piece.slice(0..length), false).await.expect("a write");
        }
        let left = Rc::new(Cell::new(3 * blocks));
        overwrite(&context, &log, blocks, &left).await;
        let (before, began_ns) = (log.figures(), context.now_ns());
        left.set(blocks);
        overwrite(&context, &log, blocks, &left).await;
        let after = log.figures();
        let rate = blocks as f64 * 1e9 / (context.now_ns() - began_ns) as f64;
        let moved = (after.moved_blocks - before.moved_blocks + after.map_blocks - before.map_blocks) as f64;
        let written = 1.0 + moved / (after.new_blocks - before.new_blocks) as f64;
        (rate, written, after.live_blocks as f64 * 4096.0 / (SEGMENTS * SEGMENT_BYTES) as f64)
    })
}

/// Clients that write random blocks until `left` of them are written.
async fn overwrite(context: &Context, log: &Log, blocks: u64, left: &Rc<Cell<u64>>) {
    let tasks: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (log, left) = (log.clone(), left.clone());
            context.spawn(async move {
                let mut random = SplitMix64::new(number + left.get());
                let data = Buffer::from_bytes(&[number as u8; 4096]);
                while left.get() > 0 {
                    left.set(left.get() - 1);
                    log.write(random.below(blocks) * 4096, data.clone(), false).await.expect("a write");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
}
