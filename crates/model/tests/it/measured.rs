//! Measured drives: the entry that measuring a modelled drive gives predicts this drive.

use std::cell::Cell;
use std::rc::Rc;

use stripewise_drive::{BufferPool, Context, Drive, IoRequest, MemoryDrive, Pace, PacedDrive, SplitMix64};
use stripewise_model::catalogue::{DriveEntry, DriveModel, drive, drive_text, parse_drive};
use stripewise_model::measured::{MeasureError, MeasureOptions, MeasureProgress, Taken, measure};
use stripewise_model::modelled::ModelledDrive;
use stripewise_runtime::VirtualExecutor;

struct Silent;

impl MeasureProgress for Silent {
    fn update(&self, _: &str, share: f64, mb_per_s: f64) {
        assert!((0.0..=1.0).contains(&share) && mb_per_s >= 0.0);
    }
}

const OPTIONS: MeasureOptions = MeasureOptions { seconds: 60.0, quick: false, may_write: true, seed: 1 };

/// Makes a drive of the given capacity in bytes on an executor.
type Maker<'a> = &'a dyn Fn(&Context, u64) -> Rc<dyn Drive>;

fn of_entry(entry: &DriveEntry) -> impl Fn(&Context, u64) -> Rc<dyn Drive> {
    let entry = entry.clone();
    move |context, capacity_bytes| {
        let memory = MemoryDrive::new("contents", capacity_bytes);
        ModelledDrive::new(context, "one", &entry, memory, 1).unwrap()
    }
}

fn paced(rates: &'static str) -> impl Fn(&Context, u64) -> Rc<dyn Drive> {
    move |context, capacity_bytes| {
        let memory = MemoryDrive::new("contents", capacity_bytes);
        PacedDrive::new(context, memory, rates.parse::<Pace>().unwrap())
    }
}

fn taken(make: Maker, capacity_bytes: u64, options: MeasureOptions) -> Result<Taken, MeasureError> {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let drives = [make(&context, capacity_bytes)];
    executor.block_on(async { measure(&context, &drives, &BufferPool::phantom(), options, &Silent).await })
}

/// Through the text of the entry, so that it loses nothing that matters.
fn entry_of(make: Maker, capacity_bytes: u64, seconds: f64) -> DriveEntry {
    let taken = taken(make, capacity_bytes, MeasureOptions { seconds, ..OPTIONS }).unwrap();
    assert!(taken.seconds < 1.5 * seconds, "it took {} s", taken.seconds);
    let text = drive_text("mine", "a drive", "measured", &taken);
    parse_drive("mine.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Reads and writes of some sizes at random places or in a row; MB/s.
struct Load {
    read_percent: u64,
    blocks: &'static [u64],
    depth: u32,
    sequential: bool,
}

fn mb_per_s(make: Maker, capacity_bytes: u64, load: &Load, seconds: f64) -> f64 {
    let (counted_ns, end_ns) = ((seconds * 0.3e9) as u64, (seconds * 1e9) as u64);
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let drive = make(&context, capacity_bytes);
    executor.block_on(async {
        let state = Rc::new((Cell::new(0u64), Cell::new(0u64), Cell::new(0u64)));
        let random = Rc::new(std::cell::RefCell::new(SplitMix64::new(99)));
        let tasks: Vec<_> = (0..load.depth)
            .map(|_| {
                let (drive, state, random) = (drive.clone(), state.clone(), random.clone());
                let (context, inner) = (context.clone(), context.clone());
                let Load { read_percent, blocks, sequential, .. } = *load;
                context.spawn(async move {
                    while inner.now_ns() < end_ns {
                        let block = blocks[random.borrow_mut().below(blocks.len() as u64) as usize];
                        let offset = match sequential {
                            true => state.0.replace(state.0.get() + block) % (capacity_bytes / block * block),
                            false => random.borrow_mut().below(capacity_bytes / block) * block,
                        };
                        let buffer = BufferPool::phantom().allocate(block as usize);
                        let request = match random.borrow_mut().below(100) < read_percent {
                            true => IoRequest::read(offset, buffer),
                            false => IoRequest::write(offset, buffer, false),
                        };
                        drive.submit(request).await.unwrap();
                        // Requests that fill the cache at the start do not count.
                        if inner.now_ns() > counted_ns {
                            state.1.set(state.1.get() + block);
                            state.2.set(inner.now_ns());
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        state.1.get() as f64 * 1e3 / (state.2.get() - counted_ns) as f64
    })
}

const LOADS: [(&str, Load); 9] = [
    ("read 4 KiB", Load { read_percent: 100, blocks: &[4096], depth: 8, sequential: false }),
    ("read 16 KiB", Load { read_percent: 100, blocks: &[16384], depth: 2, sequential: false }),
    ("read 256 KiB", Load { read_percent: 100, blocks: &[262_144], depth: 12, sequential: false }),
    ("write 4 KiB", Load { read_percent: 0, blocks: &[4096], depth: 8, sequential: false }),
    ("write 128 KiB", Load { read_percent: 0, blocks: &[131_072], depth: 6, sequential: false }),
    ("stream of reads", Load { read_percent: 100, blocks: &[524_288], depth: 4, sequential: true }),
    ("stream of writes", Load { read_percent: 0, blocks: &[524_288], depth: 4, sequential: true }),
    ("mixed", Load { read_percent: 50, blocks: &[65_536], depth: 16, sequential: false }),
    (
        "mixed sizes",
        Load { read_percent: 70, blocks: &[4096, 65_536, 1 << 20], depth: 16, sequential: false },
    ),
];

/// Errors of the entry in percent, by load.
fn errors(name: &str, make: Maker, capacity_bytes: u64, seconds: f64) -> Vec<(&'static str, f64)> {
    let entry = entry_of(make, capacity_bytes, seconds);
    let measured = of_entry(&entry);
    let error = |(load, asked): &(&'static str, Load)| {
        let drive = mb_per_s(make, capacity_bytes, asked, seconds / 3.0);
        let predicted = mb_per_s(&measured, capacity_bytes, asked, seconds / 3.0);
        let error = 100.0 * ((predicted / drive).ln().abs().exp() - 1.0);
        println!("{name}, {load}: {drive:.2} MB/s, by the entry {predicted:.2}, {error:.1} %");
        (*load, error)
    };
    LOADS.iter().map(error).collect()
}

#[test]
fn a_paced_drive_entry_predicts_within_5_percent() {
    for (rates, seconds) in [("200MB/s,200iops", 60.0), ("150MB/s", 3.0), ("100iops", 60.0)] {
        for (load, error) in errors(rates, &paced(rates), 1 << 30, seconds) {
            assert!(error <= 5.0, "{rates}, {load}: {error} %");
        }
    }
}

#[test]
fn an_ssd_entry_predicts_within_8_percent() {
    for (load, error) in errors("nvme", &of_entry(drive("nvme").unwrap()), 64 << 30, 4.0) {
        assert!(error <= 8.0, "{load}: {error} %");
    }
}

#[test]
fn a_hard_disk_entry_predicts_within_18_percent() {
    let entry = drive("hdd8tb").unwrap();
    for (load, error) in errors("hdd8tb", &of_entry(entry), entry.capacity_bytes() / 4096 * 4096, 120.0) {
        assert!(error <= 18.0, "{load}: {error} %");
    }
}

#[test]
fn measuring_finds_zones_seeks_and_caches() {
    let entry = drive("hdd8tb").unwrap();
    let found = entry_of(&of_entry(entry), entry.capacity_bytes() / 4096 * 4096, 120.0);
    let DriveModel::Measured(found) = found.model else { panic!("it was measured") };
    let (outer, inner) = (found.zones[0].1, found.zones[5].1);
    assert!((outer / 250.0 - 1.0).abs() < 0.05 && inner < 0.65 * outer, "{:?}", found.zones);
    let (short, long) = (found.seek[2].1, found.seek.last().unwrap().1);
    assert!(short < 0.75 * long && long > 12_000.0, "{:?}", found.seek);
    let deep = found.random_read.us(4096, 32);
    assert!(deep < 0.6 * found.random_read.us(4096, 1), "a queue shortens the ways: {deep}");
    assert!((128..=1024).contains(&found.write_burst_kib), "64 extents of 4 KiB: {}", found.write_burst_kib);
    assert!(found.read_cache_kib >= 256, "{}", found.read_cache_kib);
}

#[test]
fn a_read_only_measurement_writes_nothing() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let memory = MemoryDrive::new("contents", 1 << 26);
    let drives: [Rc<dyn Drive>; 1] = [PacedDrive::new(&context, memory.clone(), "90MB/s".parse().unwrap())];
    let options = MeasureOptions { may_write: false, seconds: 5.0, ..OPTIONS };
    let taken = executor.block_on(async {
        let data = stripewise_drive::Buffer::from_bytes(&vec![7; 1 << 20]);
        memory.submit(IoRequest::write(1 << 20, data, false)).await.unwrap();
        measure(&context, &drives, &BufferPool::new(1 << 26), options, &Silent).await.unwrap()
    });
    assert!(!taken.wrote);
    let text = drive_text("mine", "a drive", "x", &taken);
    let line = text.lines().find(|line| line.starts_with("random_write_us")).unwrap();
    assert!(line.contains("from = \"assumed\"") && line.contains("nothing was written"), "{line}");
    executor.block_on(async {
        let buffer = BufferPool::new(1 << 26).allocate(1 << 26);
        memory.submit(IoRequest::read(0, buffer.clone())).await.unwrap();
        let bytes = buffer.to_vec();
        assert!(bytes[1 << 20..2 << 20].iter().all(|byte| *byte == 7));
        assert!(bytes[..1 << 20].iter().chain(&bytes[2 << 20..]).all(|byte| *byte == 0));
    });
}

#[test]
fn a_drive_too_small_to_measure_is_refused() {
    let error = taken(&paced("1MB/s"), 1 << 20, OPTIONS).unwrap_err().to_string();
    assert_eq!(error, "contents has 1048576 bytes; measuring needs 8388608");
}

#[test]
fn invalid_measured_entries_name_their_line() {
    let text = drive_text("mine", "x", "y", &taken(&paced("90MB/s,300iops"), 1 << 28, OPTIONS).unwrap());
    let refused = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}: {text}");
        parse_drive("m.toml", &text.replacen(from, to, 1)).unwrap_err().to_string()
    };
    let error = refused("random_read_us = { value = [[4096, 1,", "random_read_us = { value = [[4096, 4,");
    assert!(error.starts_with("m.toml:") && error.contains("random_read_us: "), "{error}");
    let error = refused("random_read_us = { value = [[4096, 1, ", "random_read_us = { value = [[4096, 1, -");
    assert!(error.contains("random_read_us: -") && error.contains("is not within"), "{error}");
    let error = refused("[[4096, 1,", "[[4096.5, 1,");
    assert!(error.contains("is not a block size, depth and time"), "{error}");
    let error = refused("seek_us = { value = [[", "seek_us = { value = [[\"far\", ");
    assert!(error.contains("seek_us: its value is not a list of rows of 2 numbers"), "{error}");
    let error = refused("flush_us = ", "flush = ");
    assert!(error.contains("flush: without a unit; it is called flush_us"), "{error}");
}
