use super::*;
use std::collections::HashMap;

/// The rows of a comma-separated file, quotes resolved.
fn rows(text: &str) -> Vec<Vec<String>> {
    let row = |line: &str| {
        let (mut fields, mut quoted) = (vec![String::new()], false);
        for character in line.chars() {
            match character {
                '"' => quoted = !quoted,
                ',' if !quoted => fields.push(String::new()),
                other => fields.last_mut().expect("never empty").push(other),
            }
        }
        fields
    };
    text.lines().map(row).collect()
}

fn bytes(text: &str) -> u64 {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "k" => KIB,
        "M" => MIB,
        other => panic!("unit {other:?}"),
    };
    digits.parse::<u64>().unwrap() * unit
}

#[test]
fn the_constants_are_those_of_study_004() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../studies/workloads.csv"))
        .expect("studies/workloads.csv");
    let rows = rows(&text);
    let column = |name: &str| rows[0].iter().position(|head| head == name).expect("a column of that name");
    let find = |id: &str| rows.iter().find(|row| row[column("workload_id")] == id).expect("a row of that id");
    let ours = Workload::study_004();
    for (workload, id, read_share) in
        [(&ours[0], "004-seqwrite", 0.0), (&ours[1], "004-seqread", 1.0), (&ours[2], "004-mixed", 0.5)]
    {
        let row = find(id);
        assert_eq!(row[column("queue_depth")], workload.depth.to_string(), "{id}");
        assert_eq!(row[column("workers_threads")], format!("numjobs {}, thread", workload.jobs), "{id}");
        assert_eq!(workload.read_share, read_share, "{id}");
        let (pattern, split) = (&row[column("pattern")], &row[column("block_size")]);
        match workload.pattern {
            Pattern::Sequential => {
                assert_eq!(pattern, if read_share == 0.0 { "write" } else { "read" });
                assert_eq!(workload.blocks, [BlockShare { bytes: bytes(split), share: 100 }], "{id}");
            }
            _ => {
                assert!(pattern.starts_with("randrw (rwmixread not set, so fio's default 50)"), "{pattern}");
                let split = split.strip_prefix("bssplit ").expect("a split");
                let parts: Vec<BlockShare> = split
                    .split(':')
                    .map(|part| part.split_once('/').expect("size/share"))
                    .map(|(size, share)| BlockShare { bytes: bytes(size), share: share.parse().unwrap() })
                    .collect();
                assert_eq!(workload.blocks, parts, "{id}");
                assert!(row[column("other_parameters")].contains("--norandommap"));
                let mean_kib = format!("mean request {:.1} KiB", workload.mean_block_bytes() / 1024.0);
                assert!(row[column("other_parameters")].contains(&mean_kib), "{mean_kib}");
            }
        }
    }
}

#[test]
fn random_choices_follow_the_split_and_stay_inside() {
    let region = Region { offset_bytes: 8 * MIB, length_bytes: 64 * MIB + 512 };
    let workload = Workload { region: Some(region), ..Workload::mixed() };
    let resolved = workload.resolve(1 << 30).unwrap();
    let mut random = random_stream(7, 0);
    let cursor = resolved.cursor(0);
    let mut lengths: HashMap<u64, u32> = HashMap::new();
    let (mut reads, mut unaligned_large, count) = (0, 0, 100_000);
    let (mut lowest, mut highest) = (u64::MAX, 0);
    for _ in 0..count {
        let choice = resolved.choose(&mut random, 0, &cursor);
        *lengths.entry(choice.length_bytes).or_default() += 1;
        reads += u32::from(choice.is_read);
        assert!(choice.offset_bytes.is_multiple_of(4096));
        assert!(choice.offset_bytes >= region.offset_bytes);
        assert!(choice.offset_bytes + choice.length_bytes <= region.offset_bytes + region.length_bytes);
        unaligned_large +=
            u32::from(choice.length_bytes == 2 * MIB && !choice.offset_bytes.is_multiple_of(2 * MIB));
        lowest = lowest.min(choice.offset_bytes);
        highest = highest.max(choice.offset_bytes + choice.length_bytes);
    }
    for block in &workload.blocks {
        let percent = 100.0 * f64::from(lengths[&block.bytes]) / f64::from(count);
        assert!((percent - f64::from(block.share)).abs() < 1.0, "{} bytes: {percent} %", block.bytes);
    }
    assert!((f64::from(reads) / f64::from(count) - 0.5).abs() < 0.01, "{reads} reads");
    assert!(unaligned_large > 9000, "as fio, large requests start at multiples of the smallest block");
    assert!(lowest < region.offset_bytes + MIB && highest > region.offset_bytes + region.length_bytes - MIB);
}

#[test]
fn sequential_jobs_walk_their_own_part_and_wrap() {
    let region = Region { offset_bytes: MIB, length_bytes: 7 * MIB };
    let workload = Workload { jobs: 2, region: Some(region), ..Workload::sequential_write() };
    let resolved = workload.resolve(8 * MIB).unwrap();
    let mut random = random_stream(0, 0);
    for (job, expected) in [(0, [1, 2, 3, 1, 2]), (1, [4, 5, 6, 4, 5])] {
        let cursor = resolved.cursor(job);
        let offsets: Vec<u64> =
            (0..5).map(|_| resolved.choose(&mut random, job, &cursor).offset_bytes / MIB).collect();
        assert_eq!(offsets, expected, "job {job}");
        assert!((0..10).all(|_| !resolved.choose(&mut random, job, &cursor).is_read));
    }
}

#[test]
fn access_patterns_visit_the_right_offsets() {
    let offsets = |pattern: Pattern, count: usize| -> Vec<u64> {
        let workload = Workload::plain("p", pattern, 4096, 1.0, 1);
        let resolved = workload.resolve(100 * 4096).unwrap();
        let (mut random, cursor) = (random_stream(1, 1), resolved.cursor(0));
        (0..count).map(|_| resolved.choose(&mut random, 0, &cursor).offset_bytes / 4096).collect()
    };
    assert_eq!(offsets(Pattern::Strided(40 * 4096), 5), [0, 40, 80, 0, 40]);
    assert_eq!(offsets(Pattern::Partly(0), 4), [0, 1, 2, 3]);
    let partly = offsets(Pattern::Partly(20), 10_000);
    let jumps = partly.windows(2).filter(|pair| pair[1] != (pair[0] + 1) % 100).count();
    assert!((1700..2200).contains(&jumps), "{jumps}");
    let hot = offsets(Pattern::HotSpot(90, 10), 10_000).iter().filter(|place| **place < 10).count();
    assert!((8800..9200).contains(&hot), "{hot}");
    let mut seen = vec![0; 100];
    offsets(Pattern::Zipf(120), 10_000).iter().for_each(|place| seen[*place as usize] += 1);
    assert!(*seen.iter().max().unwrap() > 1500, "{seen:?}");
    for bad in [Pattern::Partly(101), Pattern::Strided(100), Pattern::Zipf(0), Pattern::HotSpot(50, 100)] {
        assert!(Workload::plain("p", bad, 4096, 1.0, 1).resolve(1 << 20).is_err(), "{bad:?}");
    }
    let nan = Workload { arrival: Arrival::Poisson(f64::NAN), ..Workload::random_read(1) };
    assert!(nan.resolve(1 << 20).is_err());
}

#[test]
fn access_specifications_mix_in_their_shares() {
    let line =
        |share, bytes, read_percent, random_percent| Access { share, bytes, read_percent, random_percent };
    let accesses = vec![line(75, 4096, 100, 100), line(25, 65536, 0, 0)];
    let workload = Workload { accesses, ..Workload::plain("a", Pattern::Random, 512, 0.5, 1) };
    let resolved = workload.resolve(64 << 20).unwrap();
    let (mut random, cursor) = (random_stream(1, 1), resolved.cursor(0));
    let all: Vec<Choice> = (0..10_000).map(|_| resolved.choose(&mut random, 0, &cursor)).collect();
    let small = all.iter().filter(|choice| choice.length_bytes == 4096).count();
    assert!((7300..7700).contains(&small), "{small}");
    assert!(all.iter().all(|choice| choice.is_read == (choice.length_bytes == 4096)));
    let in_a_row = all
        .windows(2)
        .filter(|two| !two[1].is_read && two[1].offset_bytes == two[0].offset_bytes + two[0].length_bytes);
    let large = all.len() - small;
    assert!(in_a_row.count() + 3 >= large, "large ones go on from the one before: {large}");
    let wrong = Workload { accesses: vec![line(1, 4096, 101, 0)], ..workload };
    assert!(wrong.resolve(64 << 20).is_err());
}

#[test]
fn extremes_of_the_read_share_are_exact() {
    let (all, none) = (Workload::random_read(1), Workload::random_write(1));
    for (workload, expected) in [(all, true), (none, false)] {
        let resolved = workload.resolve(1 << 20).unwrap();
        let mut random = random_stream(3, 3);
        let cursor = resolved.cursor(0);
        assert!((0..10_000).all(|_| resolved.choose(&mut random, 0, &cursor).is_read == expected));
    }
}

#[test]
fn invalid_workloads_are_refused_with_a_reason() {
    let good = Workload::mixed();
    let capacity = 1 << 30;
    let refused = |change: fn(&mut Workload), part: &str| {
        let mut workload = good.clone();
        change(&mut workload);
        let message = workload.resolve(capacity).expect_err(part).to_string();
        assert!(message.contains(part) && message.contains("mixed"), "{message}");
    };
    refused(|w| w.blocks.clear(), "split is empty");
    refused(|w| w.blocks.iter_mut().for_each(|b| b.share = 0), "split is empty");
    refused(|w| w.blocks[0].bytes = 1000, "1000 bytes");
    refused(|w| w.read_share = 1.5, "1.5");
    refused(|w| w.read_share = f64::NAN, "NaN");
    refused(|w| w.depth = 0, "at least 1");
    refused(|w| w.jobs = 100_000, "at most 65536");
    refused(|w| w.region = Some(Region { offset_bytes: u64::MAX, length_bytes: 1 }), "beyond");
    refused(|w| w.region = Some(Region { offset_bytes: 100, length_bytes: 4 << 20 }), "multiple of 512");
    refused(|w| w.region = Some(Region { offset_bytes: 0, length_bytes: 1 << 20 }), "less than one request");
    refused(|w| w.align_bytes = Some(0), "alignment");
    assert!(good.resolve(capacity).is_ok());
}
