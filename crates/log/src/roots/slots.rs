//! Roots in two alternating slots on each member. A crash during a commit leaves the other slot.
//!
//! ```text
//!  0  8 bytes  "SWLOGSLT"
//!  8  4        CRC-32C of all that follows
//! 16  8        generation
//! 24  32       members that miss writes, a bit each
//! 56  8        length of the roots, bytes
//! 64  8        identity of the log
//! 72           the roots
//! ```
//!
//! A commit that a crash cut short may be on one member only. Loading writes it to the others
//! before anything newer, which would replace their previous slot: then every member always has the
//! newest roots or those before.
//!
//! Faults expected: torn slots, slots of another log that had the space before, drives that fail or
//! are missing. A drive that missed a commit has a lower generation.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use stripewise_array::Class;
use stripewise_drive::{Buffer, BufferPool, Cause, DriveError, DriveErrorKind, IoRequest, Semaphore};
use stripewise_layout::{Geometry, MemberSet, Shape};

use crate::drives::columns::{Columns, refusals};
use crate::error::LogError;
use crate::mutation::{Mutation, is_chosen};
use crate::roots::{LocalFuture, RootStore};
use crate::summary::crc32c;

const MAGIC: [u8; 8] = *b"SWLOGSLT";
const HEAD_BYTES: usize = 72;
/// Stripes that show every pattern of a layout.
const PATTERN: u64 = 512;

/// Roots that were found on the drives.
#[derive(Clone, Debug, Default)]
pub struct FoundRoots {
    /// The roots; empty if there are none.
    pub roots: Vec<u8>,
    /// Members that miss writes.
    pub missing: MemberSet,
}

/// Contents of a slot.
struct Slot {
    member: usize,
    generation: u64,
    missing: MemberSet,
    roots: Vec<u8>,
}

/// Two slots of roots on each drive.
pub struct SlotRoots {
    columns: Rc<Columns>,
    identity: u64,
    geometry: Geometry,
    start_bytes: u64,
    slot_bytes: u64,
    turn: Semaphore,
    generation: Cell<u64>,
    missing: Cell<MemberSet>,
    current: RefCell<Vec<u8>>,
}

impl SlotRoots {
    /// Keeps the roots of a log of a layout in `2 * slot_bytes` from `start_bytes` on, on each
    /// member.
    pub fn new(
        columns: Rc<Columns>,
        identity: u64,
        shape: Shape,
        start_bytes: u64,
        slot_bytes: u64,
    ) -> Result<Rc<Self>, LogError> {
        Ok(Rc::new(Self {
            columns,
            identity,
            geometry: Geometry::new(shape, shape.interleave_bytes.saturating_mul(PATTERN))?,
            start_bytes,
            slot_bytes,
            turn: Semaphore::new(1),
            generation: Cell::new(0),
            missing: Cell::default(),
            current: RefCell::default(),
        }))
    }

    /// Members that miss writes.
    pub fn missing(&self) -> MemberSet {
        self.missing.get()
    }

    /// Leaves out members that are recorded elsewhere as missing.
    pub fn leave_out(&self, missing: MemberSet) {
        self.missing.set(self.missing.get().iter().chain(missing.iter()).collect());
    }

    /// Finds the newest roots, and sees to it that every member has them. Members in `absent` are
    /// not asked and stay missing.
    pub async fn load(&self, absent: MemberSet) -> FoundRoots {
        let mut found: Vec<Slot> = Vec::new();
        for member in (0..self.columns.width()).filter(|&member| !absent.contains(member)) {
            for slot in 0..2 {
                found.extend(self.read_slot(member, slot).await);
            }
        }
        found.sort_by_key(|slot| slot.generation);
        let newest = match is_chosen(Mutation::StaleRoots) {
            false => found.last(),
            true => found.first(),
        };
        let Some(Slot { generation, missing, roots, .. }) = newest else { return FoundRoots::default() };
        let missing: MemberSet = missing.iter().chain(absent.iter()).collect();
        self.generation.set(*generation);
        self.missing.set(missing);
        self.current.borrow_mut().clone_from(roots);
        let has_it =
            |member: usize| found.iter().any(|slot| slot.member == member && slot.generation == *generation);
        let lacking =
            (0..self.columns.width()).filter(|&member| !missing.contains(member) && !has_it(member));
        let lacking: Vec<usize> = lacking.collect();
        if let Ok(bytes) = self.encode(*generation, &missing) {
            // One that refuses is found out by the next commit, and counts for nothing before.
            let _ = self.write_to(&lacking, *generation, &bytes).await;
        }
        FoundRoots { roots: roots.clone(), missing }
    }

    async fn read_slot(&self, member: usize, slot: u64) -> Option<Slot> {
        let buffer = BufferPool::new(0).allocate(self.slot_bytes as usize);
        let at = self.start_bytes + slot * self.slot_bytes;
        let request = IoRequest::read(at, buffer.clone()).because(Cause::Record);
        self.columns.submit(member, Class::Upkeep, request).end().await.ok()?;
        let bytes = buffer.to_vec();
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        if bytes[..8] != MAGIC || u64_at(64) != self.identity {
            return None;
        }
        let length = usize::try_from(u64_at(56)).ok()?;
        let roots = bytes.get(HEAD_BYTES..HEAD_BYTES.checked_add(length)?)?.to_vec();
        let crc = u32::from_le_bytes(bytes[8..12].try_into().expect("4 bytes"));
        if crc32c(&bytes[16..HEAD_BYTES + length]) != crc {
            return None;
        }
        let is_missing = |member: &usize| bytes[24 + member / 8] >> (member % 8) & 1 == 1;
        let missing = (0..self.columns.width()).filter(is_missing).collect();
        Some(Slot { member, generation: u64_at(16), missing, roots })
    }

    async fn write(&self) -> Result<(), LogError> {
        loop {
            let missing = self.missing.get();
            let generation = self.generation.get() + 1;
            self.generation.set(generation);
            let bytes = self.encode(generation, &missing)?;
            let present = (0..self.columns.width()).filter(|&member| !missing.contains(member));
            let refused = self.write_to(&present.collect::<Vec<_>>(), generation, &bytes).await;
            let Some((_, error)) = refused.first() else { return Ok(()) };
            if self.columns.has_ended() {
                return Err(LogError::Closed);
            }
            // A full file system is no fault of the drive, and others are likely to lie there too.
            let full = refused.iter().find(|(_, error)| error.kind == DriveErrorKind::NoSpace);
            // The next generation says which drives miss it.
            let missing = missing.iter().chain(refused.iter().map(|(member, _)| *member)).collect();
            if full.is_some() || !self.geometry.survives(&missing) {
                return Err(LogError::Drive(full.map_or(error, |(_, error)| error).clone()));
            }
            for (member, error) in &refused {
                let member = self.columns.member(*member);
                member.iter().for_each(|member| member.note_write_error(error, true));
            }
            self.missing.set(missing);
        }
    }

    /// Writes a slot to members. Returns those that refused.
    async fn write_to(&self, members: &[usize], generation: u64, bytes: &Buffer) -> Vec<(usize, DriveError)> {
        let at = self.start_bytes + generation % 2 * self.slot_bytes;
        let send = |&member: &usize| {
            let request = IoRequest::write(at, bytes.clone(), true).because(Cause::Record);
            (member, self.columns.submit(member, Class::Upkeep, request))
        };
        refusals(members.iter().map(send).collect()).await
    }

    fn encode(&self, generation: u64, missing: &MemberSet) -> Result<Buffer, LogError> {
        let roots = self.current.borrow();
        let length = HEAD_BYTES + roots.len();
        if length as u64 > self.slot_bytes {
            let why = format!("{length} bytes of roots exceed the {} bytes of a slot", self.slot_bytes);
            return Err(LogError::Roots(why));
        }
        let mut bytes = vec![0; length.next_multiple_of(4096)];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[16..24].copy_from_slice(&generation.to_le_bytes());
        missing.iter().for_each(|member| bytes[24 + member / 8] |= 1 << (member % 8));
        bytes[56..64].copy_from_slice(&(roots.len() as u64).to_le_bytes());
        bytes[64..72].copy_from_slice(&self.identity.to_le_bytes());
        bytes[HEAD_BYTES..length].copy_from_slice(&roots);
        let crc = crc32c(&bytes[16..length]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        Ok(Buffer::from_bytes(&bytes))
    }
}

impl RootStore for SlotRoots {
    fn room_bytes(&self) -> u64 {
        self.slot_bytes.saturating_sub(HEAD_BYTES as u64)
    }

    fn commit(&self, roots: Vec<u8>) -> LocalFuture<'_, Result<(), LogError>> {
        Box::pin(async move {
            let _turn = self.turn.acquire(1).await;
            *self.current.borrow_mut() = roots;
            self.write().await
        })
    }

    fn exclude(&self, missing: MemberSet) -> LocalFuture<'_, Result<(), LogError>> {
        Box::pin(async move {
            let _turn = self.turn.acquire(1).await;
            self.missing.set(self.missing.get().iter().chain(missing.iter()).collect());
            self.write().await
        })
    }

    fn include(&self, member: usize) -> LocalFuture<'_, Result<(), LogError>> {
        Box::pin(async move {
            let _turn = self.turn.acquire(1).await;
            let mut missing = self.missing.get();
            missing.remove(member);
            self.missing.set(missing);
            self.write().await
        })
    }
}

#[cfg(test)]
mod tests {
    use stripewise_array::{Member, MemberOptions};
    use stripewise_drive::{Drive, MemoryDrive};
    use stripewise_layout::LayoutSpec;
    use stripewise_runtime::VirtualExecutor;

    use super::*;

    const SLOT_BYTES: u64 = 8192;

    fn mirror() -> Shape {
        LayoutSpec::parse("raid1").unwrap().resolve(2).unwrap()
    }

    /// Slots on two drives.
    fn slots(executor: &VirtualExecutor, drives: &[Rc<MemoryDrive>], identity: u64) -> Rc<SlotRoots> {
        let member = |drive: &Rc<MemoryDrive>| {
            let drive: Rc<dyn Drive> = drive.clone();
            Member::new(&executor.context(), drive, MemberOptions::default())
        };
        let columns = Columns::whole(drives.iter().map(member));
        SlotRoots::new(columns, identity, mirror(), 0, SLOT_BYTES).unwrap()
    }

    #[test]
    fn roots_of_one_member_are_handed_on_first() {
        let drives: Vec<_> = (0..2).map(|_| MemoryDrive::new("memory", 2 * SLOT_BYTES)).collect();
        let executor = VirtualExecutor::new();
        executor.block_on(async {
            let roots = slots(&executor, &drives, 1);
            for generation in 0..3u8 {
                roots.commit(vec![generation; 100]).await.unwrap();
            }
            // A commit that a crash let reach the first member only.
            let cut = drives[1].duplicate("cut");
            roots.commit(vec![3; 100]).await.unwrap();
            let drives = [drives[0].clone(), cut];
            let found = slots(&executor, &drives, 1).load(MemberSet::EMPTY).await;
            assert_eq!(found.roots, [3; 100]);
            let alone = slots(&executor, &drives, 1).load(MemberSet::from_iter([0])).await;
            assert_eq!(alone.roots, [3; 100], "before anything newer is written");
        });
    }

    #[test]
    fn slots_of_another_log_are_passed_over() {
        let drives: Vec<_> = (0..2).map(|_| MemoryDrive::new("memory", 2 * SLOT_BYTES)).collect();
        let executor = VirtualExecutor::new();
        executor.block_on(async {
            let old = slots(&executor, &drives, 1);
            for _ in 0..9 {
                old.commit(vec![1; 100]).await.unwrap();
            }
            assert!(slots(&executor, &drives, 2).load(MemberSet::EMPTY).await.roots.is_empty());
            let new = slots(&executor, &drives, 2);
            new.commit(vec![2; 100]).await.unwrap();
            assert_eq!(slots(&executor, &drives, 2).load(MemberSet::EMPTY).await.roots, [2; 100]);
        });
    }
}
