//! An array on modelled drives in virtual time, with fault injection, and a plain model of its
//! expected contents.
//!
//! Clients own interleaved chunks of the volume, so they share stripes and even blocks but never
//! sectors: the expected contents of each sector are known at any time, however many clients write
//! at once.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::kit::linear::{LinearSpec, SlotInit, missing_columns};
use stripewise_array::{Array, ArrayError, ArrayOptions, Member, MemberOptions, NoHost};
use stripewise_drive::{
    Buffer, BufferPool, CheckedDrive, Context, Delay, Drive, FaultyDrive, MemoryDrive, ModelDrive, ModelSpec,
    SplitMix64,
};
use stripewise_layout::{LayoutSpec, Shape};

pub const SECTOR: u64 = 512;

/// A drive with all its layers: memory, model, faults, checks.
#[derive(Clone)]
pub struct TestDrive {
    pub image: Rc<MemoryDrive>,
    pub faults: Rc<FaultyDrive>,
    pub top: Rc<dyn Drive>,
}

impl TestDrive {
    pub fn new(context: &Context, name: &str, capacity_bytes: u64, seed: u64) -> Self {
        let image = MemoryDrive::new(name, capacity_bytes);
        let spec = ModelSpec { latency_ns: 100_000, bytes_per_second: 500_000_000, queue_depth: 8 };
        let model = ModelDrive::new(context, name, capacity_bytes, spec, image.clone());
        let faults = FaultyDrive::new(context, model, seed);
        faults.set_delay(Delay::Exponential { mean_ns: 50_000 });
        let top = CheckedDrive::new(context, faults.clone());
        Self { image, faults, top }
    }

    pub fn member(&self, context: &Context) -> Rc<Member> {
        let options = MemberOptions { timeout_ns: 2_000_000_000, ..MemberOptions::default() };
        Member::new(context, self.top.clone(), options)
    }
}

pub fn shape(level: &str, drives: usize, interleave_bytes: u64) -> Shape {
    let mut spec = LayoutSpec::parse(level).expect("a layout's name");
    spec.interleave_bytes = Some(interleave_bytes);
    if level == "raid1" {
        spec.columns = Some(drives);
    }
    spec.resolve(drives).expect("a valid shape")
}

/// Space on each member that gives the volume about `data_bytes` of each.
pub fn space(shape: &Shape, id: u128, data_bytes: u64) -> LinearSpec {
    LinearSpec {
        id,
        shape: *shape,
        base_bytes: 1 << 20,
        space_bytes: (1 << 20) + data_bytes,
        journal_slabs: 0,
        write_back: false,
        checksums: false,
    }
}

pub struct Rig {
    pub context: Context,
    pub buffers: BufferPool,
    pub spec: LinearSpec,
    pub drives: RefCell<Vec<TestDrive>>,
    pub members: RefCell<Vec<Option<Rc<Member>>>>,
    pub array: RefCell<Array>,
    pub made: Cell<u64>,
    pub seed: u64,
}

impl Rig {
    pub async fn new(context: &Context, shape: Shape, data_bytes: u64, seed: u64) -> Rc<Self> {
        Self::with_garbage(context, shape, data_bytes, seed, true).await
    }

    /// Creates an array with checksums and the journal that they need.
    pub async fn with_checksums(context: &Context, shape: Shape, data_bytes: u64, seed: u64) -> Rc<Self> {
        let spec = space(&shape, u128::from(seed) + 1, data_bytes);
        let array_spec = spec.array_spec();
        let least_bytes = array_spec.least_journal_bytes().expect("a possible array");
        let journal_slabs = least_bytes / array_spec.slab_bytes + 1 + seed / 2 % 2;
        let spec = LinearSpec {
            space_bytes: spec.space_bytes + (1 << 20) + journal_slabs * array_spec.slab_bytes,
            journal_slabs,
            write_back: shape.parity_units() > 0 && seed.is_multiple_of(4),
            checksums: true,
            ..spec
        };
        Self::of(context, spec, seed, true).await
    }

    pub async fn with_garbage(
        context: &Context,
        shape: Shape,
        data_bytes: u64,
        seed: u64,
        garbage: bool,
    ) -> Rc<Self> {
        let mut spec = space(&shape, u128::from(seed) + 1, data_bytes);
        if shape.parity_units() > 0 && !seed.is_multiple_of(3) {
            let least_bytes = spec.array_spec().least_journal_bytes().expect("a possible array");
            spec.journal_slabs = least_bytes / spec.array_spec().slab_bytes + seed % 2;
            spec.space_bytes += spec.journal_slabs * spec.array_spec().slab_bytes;
            spec.write_back = seed % 4 > 1;
        }
        Self::of(context, spec, seed, garbage).await
    }

    pub async fn of(context: &Context, spec: LinearSpec, seed: u64, garbage: bool) -> Rc<Self> {
        let buffers = BufferPool::new(16 << 20);
        let shape = spec.shape;
        let capacity = spec.base_bytes + spec.space_bytes;
        let drives: Vec<TestDrive> = (0..shape.width)
            .map(|i| TestDrive::new(context, &format!("drive{i}"), capacity, seed + i as u64))
            .collect();
        if garbage {
            // A new array must not expose the old contents of its drives.
            for drive in &drives {
                dirty(&drive.image, seed);
            }
        }
        let members: Vec<Rc<Member>> = drives.iter().map(|drive| drive.member(context)).collect();
        let slots = members.iter().cloned().map(SlotInit::Active).collect();
        let array = Array::create(
            context,
            &buffers,
            spec.init(slots).expect("a possible array"),
            Rc::new(NoHost),
            ArrayOptions::default(),
        )
        .await
        .expect("a new array");
        Rc::new(Self {
            context: context.clone(),
            buffers,
            spec,
            made: Cell::new(drives.len() as u64),
            drives: RefCell::new(drives),
            members: RefCell::new(members.into_iter().map(Some).collect()),
            array: RefCell::new(array),
            seed,
        })
    }

    pub fn array(&self) -> Array {
        self.array.borrow().clone()
    }

    pub fn drive(&self, slot: usize) -> TestDrive {
        self.drives.borrow()[slot].clone()
    }

    pub fn member(&self, slot: usize) -> Rc<Member> {
        self.members.borrow()[slot].clone().expect("a member")
    }

    /// Attaches a new drive, full of noise, to a missing slot.
    pub async fn attach_new(&self, slot: usize) -> Result<(), ArrayError> {
        let number = self.made.get();
        self.made.set(number + 1);
        let capacity = self.spec.base_bytes + self.spec.space_bytes;
        let drive = TestDrive::new(&self.context, &format!("drive{number}"), capacity, self.seed + number);
        dirty(&drive.image, self.seed + number);
        let member = drive.member(&self.context);
        self.drives.borrow_mut()[slot] = drive;
        self.members.borrow_mut()[slot] = Some(member.clone());
        self.spec.attach(&self.array(), slot, member).await
    }

    /// Reopens the array on the same drives; missing slots stay missing, `rebuilding` ones resume
    /// at the given row.
    pub async fn reopen(&self, rebuilding: &[(usize, u64)]) {
        let missing = missing_columns(&self.array());
        for member in self.members.borrow().iter().flatten() {
            member.stop();
        }
        let mut slots = Vec::new();
        for slot in 0..self.spec.shape.width {
            if missing.contains(slot) {
                self.members.borrow_mut()[slot] = None;
                slots.push(SlotInit::Missing);
                continue;
            }
            let member = self.drive(slot).member(&self.context);
            self.members.borrow_mut()[slot] = Some(member.clone());
            slots.push(match rebuilding.iter().find(|(rebuilding, _)| *rebuilding == slot) {
                Some((_, next)) => SlotInit::Rebuilding(member, *next),
                None => SlotInit::Active(member),
            });
        }
        let array = Array::open(
            &self.context,
            &self.buffers,
            self.spec.init(slots).expect("a possible array"),
            Rc::new(NoHost),
            ArrayOptions::default(),
        )
        .await
        .expect("the array opens again");
        *self.array.borrow_mut() = array;
    }
}

/// Fills a drive with noise.
pub fn dirty(image: &Rc<MemoryDrive>, seed: u64) {
    let mut random = SplitMix64::new(seed ^ 0xD1A7);
    let block = Buffer::from_bytes(&vec![0u8; 1 << 16]);
    let mut at = 0;
    while at < image.info().capacity_bytes {
        let length = (image.info().capacity_bytes - at).min(1 << 16);
        block.with_mut(|bytes| {
            for word in bytes.chunks_exact_mut(8) {
                word.copy_from_slice(&random.next_u64().to_le_bytes());
            }
        });
        let request = stripewise_drive::IoRequest::write(at, block.slice(0..length as usize), false);
        assert!(matches!(image.submit(request).try_take(), Ok(Ok(()))));
        at += length;
    }
}

/// Contents of a sector at a version; version 0 is zeros.
pub fn stamp(sector: u64, version: u32, bytes: &mut [u8]) {
    if version == 0 {
        bytes.fill(0);
        return;
    }
    let name = sector << 32 ^ u64::from(version);
    let mut random = SplitMix64::new(name);
    for word in bytes.chunks_exact_mut(8) {
        word.copy_from_slice(&random.next_u64().to_le_bytes());
    }
    bytes[..8].copy_from_slice(&name.to_le_bytes());
}

/// The version of a sector's contents, if it is an intact one.
pub fn version_of(sector: u64, found: &[u8]) -> Option<u32> {
    let name = u64::from_le_bytes(found[..8].try_into().expect("eight bytes"));
    let version =
        if found.iter().all(|byte| *byte == 0) { 0 } else { u32::try_from(name ^ sector << 32).ok()? };
    let mut expected = [0; SECTOR as usize];
    stamp(sector, version, &mut expected);
    (found == expected).then_some(version)
}

/// Expected version of every sector.
pub struct Model {
    versions: RefCell<Vec<u32>>,
}

impl Model {
    pub fn new(capacity_bytes: u64) -> Self {
        Self { versions: RefCell::new(vec![0; (capacity_bytes / SECTOR) as usize]) }
    }

    pub fn sectors(&self) -> u64 {
        self.versions.borrow().len() as u64
    }

    pub fn set(&self, first: u64, count: u64, version: u32) {
        self.versions.borrow_mut()[first as usize..(first + count) as usize].fill(version);
    }

    pub fn version(&self, sector: u64) -> u32 {
        self.versions.borrow()[sector as usize]
    }

    pub fn data(first: u64, count: u64, version: u32) -> Buffer {
        let mut bytes = vec![0; (count * SECTOR) as usize];
        for (index, sector) in bytes.chunks_exact_mut(SECTOR as usize).enumerate() {
            stamp(first + index as u64, version, sector);
        }
        Buffer::from_bytes(&bytes)
    }

    /// Compares what was read from sector `first` on; panics at the first difference.
    pub fn check(&self, first: u64, read: &Buffer, seed: u64, what: &str) {
        let bytes = read.to_vec();
        for (index, found) in bytes.chunks_exact(SECTOR as usize).enumerate() {
            let sector = first + index as u64;
            let mut expected = [0; SECTOR as usize];
            stamp(sector, self.version(sector), &mut expected);
            assert!(
                found == expected,
                "seed {seed}: {what}: sector {sector} does not hold version {}{}",
                self.version(sector),
                which(sector, found)
            );
        }
    }

    pub async fn check_all(&self, array: &Array, seed: u64, what: &str) {
        let step = 2048;
        let mut first = 0;
        while first < self.sectors() {
            let count = step.min(self.sectors() - first);
            let read = array.read(first * SECTOR, (count * SECTOR) as usize).await;
            let read = read.unwrap_or_else(|error| panic!("seed {seed}: {what}: sector {first}: {error}"));
            self.check(first, &read, seed, what);
            first += count;
        }
    }
}

/// The version that the sector holds instead, for the message.
fn which(sector: u64, found: &[u8]) -> String {
    match version_of(sector, found) {
        Some(version) => format!(" but version {version}"),
        None => " nor any other version of it".to_owned(),
    }
}
