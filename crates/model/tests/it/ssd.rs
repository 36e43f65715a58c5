//! Solid-state drives: write amplification, depth, block sizes, caches, and the engine's trait.

use stripewise_drive::SplitMix64;
use stripewise_model::catalogue::{DriveModel, drive};
use stripewise_model::hdd::{Completed, HddOperation, HddRequest};
use stripewise_model::ssd::{Ftl, SsdParameters, SsdQueue};

use crate::kit::aligned;

fn parameters(name: &str) -> SsdParameters {
    match &drive(name).unwrap().model {
        DriveModel::Ssd(parameters) => parameters.clone(),
        other => panic!("{name} is {other:?}"),
    }
}

/// Requests a second with `depth` outstanding, aligned at random or one behind another.
fn iops(
    queue: &mut SsdQueue,
    operation: HddOperation,
    random: bool,
    block: u64,
    depth: u64,
    requests: u64,
) -> f64 {
    let mut numbers = SplitMix64::new(7);
    let span = queue.capacity_bytes();
    let mut sent = 0;
    let mut submit = |queue: &mut SsdQueue, now_ns: u64| {
        let offset_bytes = match random {
            true => aligned(&mut numbers, span, block, block),
            false => sent * block % (span / 2),
        };
        queue.submit(now_ns, HddRequest { id: sent, operation, offset_bytes, length_bytes: block });
        sent += 1;
    };
    let begin_ns = queue.next_event_ns().unwrap_or(0);
    for _ in 0..depth {
        submit(queue, begin_ns);
    }
    let mut completed: Vec<Completed> = Vec::new();
    let (mut done, mut at_ns) = (0, 0);
    while done < requests {
        let now_ns = queue.next_event_ns().unwrap();
        queue.advance(now_ns, &mut completed);
        for one in completed.drain(..) {
            done += 1;
            at_ns = one.at_ns;
            submit(queue, at_ns);
        }
    }
    done as f64 * 1e9 / (at_ns - begin_ns) as f64
}

fn near(what: &str, value: f64, wanted: f64, percent: f64) {
    println!("{what}: {value:.2}, {wanted}");
    assert!((value / wanted - 1.0).abs() * 100.0 <= percent, "{what}: {value} is not {wanted} ± {percent} %");
}

#[test]
fn write_amplification_follows_over_provisioning() {
    for (over_provisioning_percent, wanted) in [(7.0, 7.8), (15.0, 4.0), (28.0, 2.5), (50.0, 1.7)] {
        let pages = 1 << 16;
        let mut ftl = Ftl::new(pages, 128, over_provisioning_percent);
        let mut random = SplitMix64::new(3);
        let (mut writes, mut copies) = (0u64, 0u64);
        for round in 0..8 {
            for _ in 0..pages {
                let written = ftl.write(random.below(u64::from(pages)) as u32);
                if round >= 5 {
                    writes += 1;
                    copies += u64::from(written.copies);
                }
            }
        }
        let amplification = (writes + copies) as f64 / writes as f64;
        near(&format!("over-provisioning {over_provisioning_percent} %"), amplification, wanted, 10.0);
    }
}

#[test]
fn sequential_and_discarded_pages_are_not_copied() {
    let mut ftl = Ftl::new(1 << 14, 128, 7.0);
    let copies: u32 = (0..4).flat_map(|_| 0..1 << 14).map(|page| ftl.write(page).copies).sum();
    assert_eq!(copies, 0);
    let mut ftl = Ftl::new(1 << 14, 128, 7.0);
    let mut random = SplitMix64::new(3);
    let mut copies = 0;
    for _ in 0..1 << 17 {
        let page = random.below(1 << 14) as u32;
        copies += ftl.write(page).copies;
        ftl.discard(random.below(1 << 14) as u32);
    }
    assert!(copies < 1 << 15, "{copies}");
}

#[test]
fn ageing_slows_writes_but_not_reads() {
    let mut fresh = SsdQueue::new(&parameters("sata-ssd"), 1).unwrap();
    let mut aged = fresh.clone();
    aged.age(4.0, 1);
    let read = |queue: &SsdQueue| iops(&mut queue.clone(), HddOperation::Read, true, 4096, 32, 5000);
    assert!((read(&fresh) / read(&aged) - 1.0).abs() < 0.1);
    let write = |queue: &mut SsdQueue| iops(queue, HddOperation::Write, true, 4096, 32, 20_000);
    let (before, after) = (write(&mut fresh), write(&mut aged));
    assert!(aged.write_amplification() > 3.0 && fresh.write_amplification() < 1.1);
    assert!(after < before / 2.0, "{before} {after}");
}

#[test]
fn ssd_rate_grows_with_depth_and_request_size() {
    let mut queue = SsdQueue::new(&parameters("nvme"), 1).unwrap();
    let mut at = |random, block, depth| iops(&mut queue, HddOperation::Read, random, block, depth, 4000);
    let (one, deep) = (at(true, 4096, 1), at(true, 4096, 64));
    assert!((10_000.0..20_000.0).contains(&one) && deep > 20.0 * one, "{one} {deep}");
    near("long reads, MB/s", at(false, 1 << 20, 8) * 1.048_576, 7000.0, 10.0);
}

#[test]
fn a_write_cache_absorbs_a_burst() {
    let mut queue = SsdQueue::new(&parameters("x25e"), 1).unwrap();
    queue.age(4.0, 1);
    let mut completed = Vec::new();
    let mut latencies_ns = Vec::new();
    let mut now_ns = 0;
    let mut random = SplitMix64::new(2);
    for id in 0..2000 {
        let offset_bytes = aligned(&mut random, 60_000_000_000, 4096, 4096);
        queue.submit(
            now_ns,
            HddRequest { id, operation: HddOperation::Write, offset_bytes, length_bytes: 4096 },
        );
        let at_ns = queue.next_event_ns().unwrap();
        queue.advance(at_ns, &mut completed);
        latencies_ns.push(at_ns - now_ns);
        now_ns = at_ns;
    }
    let mean = |part: &[u64]| part.iter().sum::<u64>() / part.len() as u64;
    assert!(mean(&latencies_ns[..50]) < 60_000, "{:?}", &latencies_ns[..50]);
    assert!(mean(&latencies_ns[1000..]) > 2 * mean(&latencies_ns[..50]));
    let flush = HddRequest { id: 9999, operation: HddOperation::Flush, offset_bytes: 0, length_bytes: 0 };
    queue.submit(now_ns, flush);
    assert!(queue.next_event_ns().unwrap() > now_ns + 100_000, "what is in the cache has to be programmed");
}

#[test]
fn the_ssd_matches_study_002() {
    let mut queue = SsdQueue::new(&parameters("x25e"), 1).unwrap();
    near("random read, IOPS", iops(&mut queue, HddOperation::Read, true, 4096, 32, 5000), 35_511.0, 10.0);
    near(
        "sequential read, MB/s",
        iops(&mut queue, HddOperation::Read, false, 1 << 20, 32, 1000) * 1.048_576,
        250.0,
        5.0,
    );
    queue.age(5.0, 1);
    near("random write, IOPS", iops(&mut queue, HddOperation::Write, true, 4096, 32, 20_000), 5953.0, 20.0);
}

#[test]
fn the_same_seed_gives_the_same_times() {
    let run = || {
        let mut queue = SsdQueue::new(&parameters("sata-ssd"), 3).unwrap();
        iops(&mut queue, HddOperation::Write, true, 8192, 17, 3000)
    };
    assert_eq!(run(), run());
}

#[test]
fn impossible_descriptions_are_refused_by_name() {
    let refused = |parameters: SsdParameters| parameters.check().unwrap_err().parameter;
    assert_eq!(refused(SsdParameters { channels: 0, ..parameters("nvme") }), "channels");
    assert_eq!(refused(SsdParameters { page_bytes: 5000, ..parameters("nvme") }), "page_bytes");
    assert_eq!(refused(SsdParameters { read_us: f64::NAN, ..parameters("nvme") }), "read_us");
    let nothing = SsdParameters { over_provisioning_percent: 0.0, ..parameters("nvme") };
    assert_eq!(refused(nothing), "over_provisioning_percent");
}
