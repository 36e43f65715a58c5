//! All losses that a layout tolerates, and one more: readable data is correct, unreadable data is
//! reported.
//!
//! Invariant I3 (`docs/internals/invariants.md`).

use std::ops::RangeInclusive;
use std::rc::Rc;

use crate::kit::array::{Model, SECTOR, dirty, shape, space};
use crate::kit::linear::{LinearSpec, SlotInit, missing_columns, rebuild};
use stripewise_array::{Array, ArrayError, ArrayOptions, Member, MemberOptions, NoHost};
use stripewise_drive::{BufferPool, Context, Drive, MemoryDrive};
use stripewise_layout::{MemberSet, Shape};
use stripewise_runtime::VirtualExecutor;

const DATA_BYTES: u64 = 1 << 20;

struct Plain {
    context: Context,
    buffers: BufferPool,
    spec: LinearSpec,
    drives: Vec<Rc<MemoryDrive>>,
}

impl Plain {
    fn new(context: &Context, shape: Shape) -> Self {
        let spec = space(&shape, 7, DATA_BYTES);
        let capacity = spec.base_bytes + spec.space_bytes;
        let drives: Vec<_> =
            (0..shape.width).map(|i| MemoryDrive::new(&format!("memory{i}"), capacity)).collect();
        for drive in &drives {
            dirty(drive, 5);
        }
        Self { context: context.clone(), buffers: BufferPool::new(8 << 20), spec, drives }
    }

    fn slots(&self, missing: &MemberSet) -> Vec<SlotInit> {
        let member =
            |drive: &Rc<MemoryDrive>| Member::new(&self.context, drive.clone(), MemberOptions::default());
        let slot = |(index, drive)| {
            if missing.contains(index) { SlotInit::Missing } else { SlotInit::Active(member(drive)) }
        };
        self.drives.iter().enumerate().map(slot).collect()
    }

    async fn create(&self) -> Array {
        let slots = self.slots(&MemberSet::EMPTY);
        let init = self.spec.init(slots).expect("a possible array");
        Array::create(&self.context, &self.buffers, init, Rc::new(NoHost), ArrayOptions::default())
            .await
            .expect("a new array")
    }

    async fn open(&self, missing: &MemberSet) -> Result<Array, ArrayError> {
        let slots = self.slots(missing);
        let init = self.spec.init(slots).expect("a possible array");
        Array::open(&self.context, &self.buffers, init, Rc::new(NoHost), ArrayOptions::default()).await
    }
}

async fn fill(array: &Array, model: &Model, version: u32) {
    let step = 512;
    let mut first = 0;
    while first < model.sectors() {
        let count = step.min(model.sectors() - first);
        array.write(first * SECTOR, Model::data(first, count, version), false).await.expect("filling");
        model.set(first, count, version);
        first += count;
    }
    array.flush().await.expect("filling");
}

fn combinations(width: usize, size: usize) -> Vec<MemberSet> {
    (0u32..1 << width)
        .filter(|mask| mask.count_ones() as usize == size)
        .map(|mask| (0..width).filter(|bit| mask >> bit & 1 == 1).collect())
        .collect()
}

/// Reads stripe by stripe and checks the data; returns the number of unreadable stripes.
async fn read_what_is_left(array: &Array, model: &Model, missing: &MemberSet, what: &str) -> u64 {
    let geometry = array.geometry();
    let mut lost = 0;
    for stripe in 0..array.capacity_bytes() / geometry.stripe_data_bytes() {
        let offset = stripe * geometry.stripe_data_bytes();
        match array.read(offset, geometry.stripe_data_bytes() as usize).await {
            Ok(data) => {
                model.check(offset / SECTOR, &data, stripe, what);
            }
            Err(error) => {
                assert!(
                    !geometry.stripe_survives(stripe, missing),
                    "{what}: stripe {stripe} can be read without {missing:?}, yet: {error}"
                );
                assert!(matches!(error, ArrayError::Lost { .. }), "{what}: {error}");
                lost += 1;
            }
        }
        // Units of a failed stripe on present members stay readable.
        for range in geometry.data_ranges(0, geometry.stripe_data_bytes()) {
            let unit_offset = offset + range.unit as u64 * geometry.interleave_bytes();
            let place = geometry.place_of_unit(stripe, range.unit);
            if !missing.contains(place.member) {
                let data = array.read(unit_offset, range.length() as usize).await;
                let data = data.unwrap_or_else(|error| panic!("{what}: a unit on a present member: {error}"));
                model.check(unit_offset / SECTOR, &data, stripe, what);
            }
        }
    }
    lost
}

/// A layout on each number of drives that it can have.
fn each_width(level: &str, widths: RangeInclusive<usize>, mut test: impl FnMut(&VirtualExecutor, Shape)) {
    let is_grouped = level == "raid50" || level == "raid60";
    for drives in widths.filter(|drives| !is_grouped || drives.is_multiple_of(2)) {
        let executor = VirtualExecutor::new();
        test(&executor, shape(level, drives, 4096));
    }
}

fn lose_and_read((level, first, last): (&str, usize, usize)) {
    let mut lossy = 0;
    each_width(level, first..=last, |executor, shape| {
        let context = executor.context();
        executor.block_on(async {
            let plain = Plain::new(&context, shape);
            let array = plain.create().await;
            let model = Model::new(array.capacity_bytes());
            fill(&array, &model, 1).await;
            array.close().await.expect("closing");
            for size in 0..=shape.fault_tolerance() + 1 {
                for missing in combinations(shape.width, size.min(shape.width)) {
                    let what = format!("{level} on {} without {missing:?}", shape.width);
                    let Ok(array) = plain.open(&missing).await else {
                        assert_eq!(missing.len(), shape.width, "{what}: opens while any member is present");
                        continue;
                    };
                    let lost = read_what_is_left(&array, &model, &missing, &what).await;
                    let survives = array.geometry().survives(&missing);
                    assert_eq!(lost == 0, survives, "{what}: {lost} stripes lost");
                    assert!(survives || size > shape.fault_tolerance(), "{what}: within the tolerance");
                    lossy += u64::from(!survives);
                }
            }
        });
    });
    // A mirror with its last drive lost does not open.
    assert!(lossy > 0 || level == "raid1", "no combination beyond the tolerance was tried");
}

test_cases! {
    tolerated_losses_survive_and_one_more_is_reported = lose_and_read {
        raid0_on_2_to_8: ("raid0", 2, 8),
        raid1_on_2_to_7: ("raid1", 2, 7),
        raid1_on_8: ("raid1", 8, 8),
        raid4_on_3_to_8: ("raid4", 3, 8),
        raid5_on_3_to_8: ("raid5", 3, 8),
        raid6_on_4_to_7: ("raid6", 4, 7),
        raid6_on_8: ("raid6", 8, 8),
        raid7_on_5_to_7: ("raid7", 5, 7),
        raid7_on_8: ("raid7", 8, 8),
        raid10_on_3_to_7: ("raid10", 3, 7),
        raid10_on_8: ("raid10", 8, 8),
        raid50_on_6_to_8: ("raid50", 6, 8),
        raid60_on_8: ("raid60", 8, 8),
    }
}

fn lose_write_and_replace((level, first, last): (&str, usize, usize)) {
    each_width(level, first..=last, |executor, shape| {
        let context = executor.context();
        let combinations = combinations(shape.width, shape.fault_tolerance());
        // All pairs and triples of eight are many; beyond the small layouts take every seventh.
        let every = if combinations.len() > 30 { 7 } else { 1 };
        for missing in combinations.into_iter().step_by(every) {
            executor.block_on(async {
                let plain = Plain::new(&context, shape);
                let array = plain.create().await;
                let model = Model::new(array.capacity_bytes());
                let what = format!("{level} on {} without {missing:?}", shape.width);
                fill(&array, &model, 1).await;
                for slot in missing.iter() {
                    array.member(slot as u32).expect("a member").fail("taken out");
                }
                array.flush().await.expect("a flush excludes them");
                assert_eq!(missing_columns(&array), missing, "{what}");
                // Small, unaligned, across strips and across stripes.
                for (index, &(first, count)) in
                    [(1u64, 1u64), (9, 20), (100, 64), (301, 3), (512, 257)].iter().enumerate()
                {
                    let version = 2 + index as u32;
                    array
                        .write(first * SECTOR, Model::data(first, count, version), false)
                        .await
                        .expect("a degraded write");
                    model.set(first, count, version);
                }
                assert_eq!(read_what_is_left(&array, &model, &missing, &what).await, 0);
                for slot in missing.iter() {
                    let fresh = MemoryDrive::new("fresh", plain.drives[slot].info().capacity_bytes);
                    dirty(&fresh, 99);
                    let member = Member::new(&context, fresh, MemberOptions::default());
                    plain.spec.attach(&array, slot, member).await.expect("attaching");
                    rebuild(&array).await.expect("a rebuild");
                }
                let report = array.scrub(&|_, _| {}).await.expect("a scrub");
                assert_eq!((report.blamed.len(), report.unattributed_blocks), (0, 0), "{what}: {report:?}");
                model.check_all(&array, 0, &what).await;
            });
        }
    });
}

test_cases! {
    degraded_writes_survive_empty_replacements = lose_write_and_replace {
        raid1_on_2_to_7: ("raid1", 2, 7),
        raid1_on_8: ("raid1", 8, 8),
        raid4_on_3_to_8: ("raid4", 3, 8),
        raid5_on_3_to_8: ("raid5", 3, 8),
        raid6_on_4_to_7: ("raid6", 4, 7),
        raid6_on_8: ("raid6", 8, 8),
        raid7_on_5_to_7: ("raid7", 5, 7),
        raid7_on_8: ("raid7", 8, 8),
        raid10_on_3_to_7: ("raid10", 3, 7),
        raid10_on_8: ("raid10", 8, 8),
        raid50_on_6_to_8: ("raid50", 6, 8),
        raid60_on_8: ("raid60", 8, 8),
    }
}

#[test]
fn write_without_enough_drives_is_refused() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let plain = Plain::new(&context, shape("raid5", 4, 4096));
        let array = plain.create().await;
        let model = Model::new(array.capacity_bytes());
        fill(&array, &model, 1).await;
        let missing: MemberSet = [0, 1].into_iter().collect();
        for slot in missing.iter() {
            array.member(slot as u32).expect("a member").fail("taken out");
            let _ = array.flush().await;
        }
        let error = array.write(0, Model::data(0, 8, 2), false).await.expect_err("too much is gone");
        assert!(matches!(error, ArrayError::Drive(_) | ArrayError::Lost { .. }), "{error}");
        let _ = read_what_is_left(&array, &model, &missing, "raid5 without two").await;
    });
}
