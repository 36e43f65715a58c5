//! Hard disks: what mechanics, cache and queue must show, whatever the drive.

use stripewise_drive::SplitMix64;
use stripewise_model::hdd::{DataSheet, Hdd, HddOperation, HddQueue, HddRequest, SeekCurve};

use crate::kit::{Delivered, aligned, closed_loop};

fn sheet() -> DataSheet {
    DataSheet::generic_8tb_7200()
}

fn without_caches() -> DataSheet {
    DataSheet { read_segments: 0, read_ahead_kib: 0, write_cache_extents: 0, ..sheet() }
}

fn random(sheet: &DataSheet, operation: HddOperation, depth: u64, requests: u64) -> Delivered {
    let mut queue = HddQueue::new(&sheet.parameters().unwrap(), 5).unwrap();
    let span = queue.capacity_bytes();
    let mut random = SplitMix64::new(11);
    closed_loop(&mut queue, depth, requests, |_| (operation, aligned(&mut random, span, 4096, 4096), 4096))
}

fn sequential(sheet: &DataSheet, operation: HddOperation, from: u64, block: u64, depth: u64) -> Delivered {
    let mut queue = HddQueue::new(&sheet.parameters().unwrap(), 5).unwrap();
    closed_loop(&mut queue, depth, (256 << 20) / block, |id| (operation, from + id * block, block))
}

fn near(value: f64, wanted: f64, percent: f64) {
    assert!((value / wanted - 1.0).abs() * 100.0 <= percent, "{value} is not {wanted} ± {percent} %");
}

#[test]
fn sectors_map_uniquely_and_streams_run_at_full_rate() {
    let sheet = DataSheet { capacity_bytes: 100 << 20, inner_mb_per_s: 250.0, ..without_caches() };
    let hdd = Hdd::new(&sheet.parameters().unwrap(), 1).unwrap();
    let sectors = hdd.geometry().capacity_sectors();
    let mut places = std::collections::HashSet::new();
    for lba in 0..sectors {
        let target = hdd.target(lba);
        assert!(places.insert((target.cylinder, target.head, target.slot)), "sector {lba}");
    }
    let plan = hdd.plan(0, 0, sectors as u32, false);
    let seconds = (plan.finished_ns - plan.positioned_ns) as f64 / 1e9;
    near((sectors * 4096) as f64 / 1e6 / seconds, 250.0, 4.0);
}

#[test]
fn a_transfer_in_parts_ends_when_the_whole_does() {
    let mut random = SplitMix64::new(3);
    for seed in 0..200 {
        let hdd = Hdd::new(&DataSheet { ..without_caches() }.parameters().unwrap(), seed).unwrap();
        let lba = random.below(hdd.geometry().capacity_sectors() - 4000);
        let sectors = 1 + random.below(3000) as u32;
        let first = 1 + random.below(u64::from(sectors)) as u32;
        let start_ns = random.below(1 << 40);
        let whole = hdd.plan(start_ns, lba, sectors, false);
        if whole.finished_ns - whole.positioned_ns >= 8_000_000 {
            continue; // Whole tracks are read from wherever the head comes down.
        }
        let mut parts = hdd.clone();
        let one = parts.plan(start_ns, lba, first, false);
        parts.commit(&one);
        let mut finished_ns = one.finished_ns;
        if first < sectors {
            finished_ns = parts.plan(finished_ns, lba + u64::from(first), sectors - first, false).finished_ns;
        }
        assert_eq!(finished_ns, whole.finished_ns, "seed {seed}: {sectors} sectors at {lba}, {first} first");
    }
}

#[test]
fn progress_at_the_end_is_the_plan() {
    let mut random = SplitMix64::new(9);
    for seed in 0..200 {
        let sheet = DataSheet { settle_ms: 2.0, ..without_caches() };
        let mut parameters = sheet.parameters().unwrap();
        parameters.zero_latency_read = false;
        let hdd = Hdd::new(&parameters, seed).unwrap();
        let lba = random.below(hdd.geometry().capacity_sectors() - 4000);
        let sectors = 1 + random.below(3000) as u32;
        let plan = hdd.plan(77, lba, sectors, false);
        let progress = hdd.progress(77, lba, sectors, plan.finished_ns);
        assert_eq!((progress.sectors, progress.at_ns), (sectors, plan.finished_ns), "seed {seed}");
        let before = hdd.progress(77, lba, sectors, plan.finished_ns - 1);
        assert_eq!(before.sectors, sectors - 1, "seed {seed}");
    }
}

#[test]
fn a_random_read_takes_mean_seek_and_half_a_rotation() {
    let delivered = random(&without_caches(), HddOperation::Read, 1, 4000);
    near(delivered.mean_ms(), 0.05 + 8.0 + 60_000.0 / 7200.0 / 2.0, 2.0);
}

#[test]
fn a_deep_queue_is_served_by_position() {
    let one = random(&without_caches(), HddOperation::Read, 1, 2000).iops();
    let eight = random(&without_caches(), HddOperation::Read, 8, 2000).iops();
    let deep = random(&without_caches(), HddOperation::Read, 32, 4000).iops();
    assert!(eight > 1.4 * one && deep > 1.3 * eight, "{one} {eight} {deep}");
    // Beyond its tags the drive sees no more of the queue.
    near(random(&without_caches(), HddOperation::Read, 256, 4000).iops(), deep, 3.0);
}

#[test]
fn no_request_starves_in_a_deep_queue() {
    let delivered = random(&without_caches(), HddOperation::Read, 32, 20_000);
    let longest_ns = delivered.latencies_ns.iter().max().unwrap();
    assert!(*longest_ns < 3_000_000_000, "{longest_ns}");
}

#[test]
fn a_read_stream_starves_no_other_request() {
    let mut queue = HddQueue::new(&sheet().parameters().unwrap(), 5).unwrap();
    let far = queue.capacity_bytes() / 2 / 4096 * 4096;
    let delivered = closed_loop(&mut queue, 8, 20_000, |id| match id {
        500 => (HddOperation::Read, far, 4096),
        id => (HddOperation::Read, id * 65_536, 65_536),
    });
    let longest_ns = delivered.latencies_ns.iter().max().unwrap();
    assert!(*longest_ns < 1_000_000_000, "{longest_ns}");
}

#[test]
fn streams_run_at_the_rate_of_their_zone_at_any_depth() {
    // Data still in the write cache at the end counts as delivered.
    let sheet = DataSheet { write_cache_mib: 8, ..sheet() };
    for operation in [HddOperation::Read, HddOperation::Write] {
        for depth in [1, 4, 64] {
            near(sequential(&sheet, operation, 0, 1 << 20, depth).mb_per_s(), 250.0, 6.0);
            let from = sheet.capacity_bytes / 4096 * 4096 - (512 << 20);
            near(sequential(&sheet, operation, from, 1 << 20, depth).mb_per_s(), 125.0, 6.0);
        }
    }
}

#[test]
fn small_reads_without_read_ahead_cost_a_rotation() {
    let ahead = sequential(&sheet(), HddOperation::Read, 0, 4096, 1).mb_per_s();
    assert!(ahead > 50.0, "{ahead}");
    let sheet = DataSheet { command_overhead_ms: 0.1, ..without_caches() };
    let mut queue = HddQueue::new(&sheet.parameters().unwrap(), 5).unwrap();
    let delivered = closed_loop(&mut queue, 1, 500, |id| (HddOperation::Read, id * 4096, 4096));
    near(delivered.mean_ms(), 60_000.0 / 7200.0, 3.0);
}

#[test]
fn a_full_write_cache_falls_to_the_media_rate() {
    let mut queue = HddQueue::new(&sheet().parameters().unwrap(), 5).unwrap();
    let span = queue.capacity_bytes();
    let mut random = SplitMix64::new(1);
    let delivered = closed_loop(&mut queue, 1, 2000, |_| {
        (HddOperation::Write, aligned(&mut random, span, 4096, 4096), 4096)
    });
    assert!(
        delivered.latencies_ns[..64].iter().all(|ns| *ns < 200_000),
        "{:?}",
        &delivered.latencies_ns[..64]
    );
    let steady = &delivered.latencies_ns[200..];
    let mean_ms = steady.iter().sum::<u64>() as f64 / steady.len() as f64 / 1e6;
    assert!((2.0..6.0).contains(&mean_ms), "{mean_ms}");
}

#[test]
fn a_flush_waits_for_all_acknowledged_writes() {
    let parameters = sheet().parameters().unwrap();
    let mut queue = HddQueue::new(&parameters, 5).unwrap();
    let mut random = SplitMix64::new(1);
    let span = queue.capacity_bytes();
    let mut completed = Vec::new();
    for id in 0..20 {
        let offset_bytes = aligned(&mut random, span, 4096, 4096);
        let operation = HddOperation::Write;
        queue.submit(0, HddRequest { id, operation, offset_bytes, length_bytes: 4096 });
    }
    let operation = HddOperation::Flush;
    queue.submit(0, HddRequest { id: 99, operation, offset_bytes: 0, length_bytes: 0 });
    while let Some(now_ns) = queue.next_event_ns() {
        queue.advance(now_ns, &mut completed);
    }
    let last = completed.last().unwrap();
    assert_eq!((completed.len(), last.id), (21, 99));
    assert!(last.at_ns > 20 * 1_000_000, "twenty positions take longer than {} ns", last.at_ns);
    assert_eq!(queue.statistics().accesses, 20);
}

#[test]
fn cache_hits_are_limited_by_the_interface_rate() {
    let sheet = sheet();
    let mut queue = HddQueue::new(&sheet.parameters().unwrap(), 1).unwrap();
    // 16 MiB again and again: after the first time all of it is in the read cache.
    let read = |id: u64| (HddOperation::Read, (id % 16) << 20, 1 << 20);
    let delivered = closed_loop(&mut queue, 16, 2000, read);
    let rate = delivered.mb_per_s();
    assert!((0.9 * sheet.interface_mb_per_s..=sheet.interface_mb_per_s).contains(&rate), "{rate}");
}

#[test]
fn rewriting_cached_blocks_saves_media_accesses() {
    let mut queue = HddQueue::new(&sheet().parameters().unwrap(), 5).unwrap();
    let mut random = SplitMix64::new(1);
    let small = closed_loop(&mut queue, 8, 3000, |_| {
        (HddOperation::Write, (7 << 30) + aligned(&mut random, 256 << 10, 4096, 4096), 4096)
    });
    assert!(queue.statistics().accesses < 2000, "{:?}", queue.statistics());
    assert!(small.iops() > 2.0 * random_writes_iops(), "{}", small.iops());
}

fn random_writes_iops() -> f64 {
    random(&sheet(), HddOperation::Write, 8, 3000).iops()
}

#[test]
fn forced_writes_are_on_the_medium() {
    let forced = random(&sheet(), HddOperation::ForcedWrite, 1, 1000);
    near(forced.mean_ms(), 0.05 + 0.3 + 8.0 + 60_000.0 / 7200.0 / 2.0, 4.0);
}

#[test]
fn the_same_seed_gives_the_same_times() {
    let run = || random(&sheet(), HddOperation::Write, 40, 2000);
    assert_eq!(run(), run());
}

#[test]
fn impossible_descriptions_are_refused_by_name() {
    let refused = |sheet: DataSheet| sheet.parameters().unwrap_err().parameter;
    assert_eq!(refused(DataSheet { rpm: 0, ..sheet() }), "revolutions_per_minute");
    assert_eq!(refused(DataSheet { inner_mb_per_s: 300.0, ..sheet() }), "inner_mb_per_s");
    assert_eq!(refused(DataSheet { average_seek_ms: f64::NAN, ..sheet() }), "average_seek_ms");
    assert_eq!(refused(DataSheet { heads: 0, ..sheet() }), "heads");
    assert_eq!(refused(DataSheet { queue_depth: 0, ..sheet() }), "queue_depth");
    let mut parameters = sheet().parameters().unwrap();
    parameters.seek = SeekCurve::Table(vec![(5, 1), (5, 2)]);
    assert_eq!(parameters.check().unwrap_err().parameter, "seek");
    let mut parameters = sheet().parameters().unwrap();
    parameters.capacity_sectors *= 2;
    assert_eq!(Hdd::new(&parameters, 1).unwrap_err().parameter, "capacity_sectors");
}

#[test]
fn seek_tables_are_interpolated_and_extrapolated() {
    let curve = SeekCurve::Table(vec![(1, 1000), (11, 2000), (21, 2500)]);
    assert_eq!([0, 1, 6, 11, 31].map(|distance| curve.time_ns(distance, 100)), [0, 1000, 1500, 2000, 3000]);
}
