//! Drives with power cuts for a small array, which is created on them and reopened after a cut.

use std::rc::Rc;

use crate::kit::linear::{LinearSpec, SlotInit};
use stripewise_array::{ArrayInit, Member, MemberOptions};
use stripewise_drive::{Context, CrashDrive, Drive};

use super::array::shape;

const MIB: u64 = 1 << 20;

/// Number of drives of the array.
pub const WIDTH: usize = 3;
/// Interleave in bytes.
pub const STRIP: u64 = 16384;
pub const BLOCK: u64 = 4096;

/// RAID 5 with a journal and checksums.
pub fn small_array(write_back: bool) -> LinearSpec {
    LinearSpec {
        id: 9,
        shape: shape("raid5", WIDTH, STRIP),
        base_bytes: MIB,
        space_bytes: 12 * MIB,
        journal_slabs: 2,
        write_back,
        checksums: true,
    }
}

/// Parameters to create or open the array.
pub fn init_on(context: &Context, spec: &LinearSpec, drives: &[Rc<dyn Drive>]) -> ArrayInit {
    let member = |drive: &Rc<dyn Drive>| Member::new(context, drive.clone(), MemberOptions::default());
    spec.init(drives.iter().map(|drive| SlotInit::Active(member(drive))).collect()).expect("possible")
}

/// New drives of the right size for the array.
pub struct CutDrives(Vec<Rc<CrashDrive>>);

impl CutDrives {
    pub fn for_array(spec: &LinearSpec) -> Self {
        let capacity = spec.base_bytes + spec.space_bytes;
        Self((0..WIDTH).map(|number| CrashDrive::new(&format!("crash{number}"), capacity)).collect())
    }

    pub fn as_drives(&self) -> Vec<Rc<dyn Drive>> {
        self.0.iter().map(|drive| drive.clone() as _).collect()
    }

    /// Contents of the drives if power were cut now; the seed decides about unflushed writes.
    pub fn after_cut(&self, seed: u64) -> Vec<Rc<dyn Drive>> {
        let image = |(number, drive): (u64, &Rc<CrashDrive>)| {
            drive.image_after_cut(&format!("after{number}"), seed * WIDTH as u64 + number) as Rc<dyn Drive>
        };
        (0..).zip(&self.0).map(image).collect()
    }
}
