//! Cost of addresses and plans of a 4 KiB request: the engine has about a microsecond for
//! everything.
//!
//! Every figure is the mean over 4096 random places of the volume, so that neither branches nor
//! addresses can be predicted; the loop around it costs about a nanosecond. The I/O that follows is
//! not included.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use stripewise_layout::{Geometry, LayoutSpec, Level, MemberSet, UnitRange, plan_read, plan_write};

const PLACES: usize = 4096;
const REQUEST_BYTES: u64 = 4096;

fn geometry(level: Level, drives: usize) -> Geometry {
    let shape = LayoutSpec::new(level).resolve(drives).expect("the benchmark asks for possible layouts");
    Geometry::new(shape, 4 << 40).expect("members of 4 TiB")
}

fn random_offsets(geometry: &Geometry) -> Vec<u64> {
    let blocks = geometry.capacity_bytes() / REQUEST_BYTES;
    let mut state = 1u64;
    let offsets = (0..PLACES).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 16) % blocks * REQUEST_BYTES
    });
    offsets.collect()
}

fn each_offset<T>(
    criterion: &mut Criterion,
    group: &str,
    name: &str,
    geometry: &Geometry,
    work: impl Fn(u64) -> T,
) {
    let offsets = random_offsets(geometry);
    let mut group = criterion.benchmark_group(group);
    group.throughput(Throughput::Elements(PLACES as u64));
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            for &offset in &offsets {
                black_box(&work(offset));
            }
        });
    });
    group.finish();
}

fn addresses(criterion: &mut Criterion) {
    for (level, drives) in [
        (Level::Raid0, 4),
        (Level::Raid5, 4),
        (Level::Raid5, 12),
        (Level::Raid6, 8),
        (Level::Raid10, 5),
        (Level::Raid50, 12),
    ] {
        let geometry = geometry(level, drives);
        let name = format!("{level} on {drives}");
        each_offset(criterion, "stripe", &name, &geometry, |offset| {
            geometry.stripe(geometry.locate(offset).stripe)
        });
        each_offset(criterion, "data_unit_place", &name, &geometry, |offset| {
            geometry.data_unit_place(offset)
        });
        each_offset(criterion, "unit_at", &name, &geometry, |offset| {
            geometry.unit_at(offset as usize / 4096 % drives, offset / drives as u64)
        });
    }
}

fn written(geometry: &Geometry, from: u64) -> UnitRange {
    let interleave = geometry.interleave_bytes();
    let start = from % interleave;
    UnitRange { unit: (from / interleave) as usize, start, end: start + REQUEST_BYTES }
}

fn plans(criterion: &mut Criterion) {
    let one_missing: MemberSet = [1].into_iter().collect();
    for (level, drives) in [(Level::Raid0, 4), (Level::Raid10, 4), (Level::Raid5, 4), (Level::Raid6, 8)] {
        let geometry = geometry(level, drives);
        for (state, missing) in [("", MemberSet::EMPTY), (" degraded", one_missing)] {
            if !geometry.survives(&missing) {
                continue;
            }
            let name = format!("{level} on {drives}{state}");
            each_offset(criterion, "stripe and plan_read", &name, &geometry, |offset| {
                let location = geometry.locate(offset);
                let stripe = geometry.stripe(location.stripe);
                plan_read(&geometry, &stripe, location.from, location.from + REQUEST_BYTES, &missing, |_| 0)
            });
            each_offset(criterion, "stripe and plan_write", &name, &geometry, |offset| {
                let location = geometry.locate(offset);
                let stripe = geometry.stripe(location.stripe);
                plan_write(&geometry, &stripe, &[written(&geometry, location.from)], &missing)
            });
        }
    }
}

criterion_group! {
    name = requests;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600))
        .without_plots();
    targets = addresses, plans
}
criterion_main!(requests);
