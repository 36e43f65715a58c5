//! Roots in two alternating slots on each drive. A crash during a commit leaves the other slot.
//!
//! ```text
//!  0  8 bytes  "SWLOGSLT"
//!  8  4        CRC-32C of all that follows
//! 16  8        generation
//! 24  32       members that miss writes, a bit each
//! 56  8        length of the roots, bytes
//! 64           the roots
//! ```
//!
//! Faults expected: torn slots, drives that fail or are missing. A drive that missed a commit has
//! a lower generation.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use stripewise_array::{Class, Member};
use stripewise_drive::{Buffer, BufferPool, Cause, IoRequest, Semaphore};
use stripewise_layout::MemberSet;

use crate::roots::{LocalFuture, RootStore};
use crate::summary::crc32c;

const MAGIC: [u8; 8] = *b"SWLOGSLT";
const HEAD_BYTES: usize = 64;

/// Roots that were found on the drives.
#[derive(Clone, Debug, Default)]
pub struct FoundRoots {
    /// The roots; empty if there are none.
    pub roots: Vec<u8>,
    /// Members that miss writes.
    pub missing: MemberSet,
}

/// Two slots of roots on each drive.
pub struct SlotRoots {
    members: Vec<Rc<Member>>,
    start_bytes: u64,
    slot_bytes: u64,
    turn: Semaphore,
    generation: Cell<u64>,
    missing: Cell<MemberSet>,
    current: RefCell<Vec<u8>>,
}

impl SlotRoots {
    /// Keeps roots in `2 * slot_bytes` from `start_bytes` on, on each member.
    pub fn new(members: Vec<Rc<Member>>, start_bytes: u64, slot_bytes: u64) -> Rc<Self> {
        Rc::new(Self {
            members,
            start_bytes,
            slot_bytes,
            turn: Semaphore::new(1),
            generation: Cell::new(0),
            missing: Cell::default(),
            current: RefCell::default(),
        })
    }

    /// Finds the newest roots. Members in `absent` are not asked and stay missing.
    pub async fn load(&self, absent: MemberSet) -> FoundRoots {
        let mut found: Vec<(u64, MemberSet, Vec<u8>)> = Vec::new();
        for member in (0..self.members.len()).filter(|&member| !absent.contains(member)) {
            for slot in 0..2 {
                found.extend(self.read_slot(member, slot).await);
            }
        }
        found.sort_by_key(|(generation, ..)| *generation);
        let Some((generation, missing, roots)) = found.pop() else { return FoundRoots::default() };
        let missing: MemberSet = missing.iter().chain(absent.iter()).collect();
        self.generation.set(generation);
        self.missing.set(missing);
        self.current.borrow_mut().clone_from(&roots);
        FoundRoots { roots, missing }
    }

    async fn read_slot(&self, member: usize, slot: u64) -> Option<(u64, MemberSet, Vec<u8>)> {
        let buffer = BufferPool::new(0).allocate(self.slot_bytes as usize);
        let at = self.start_bytes + slot * self.slot_bytes;
        let request = IoRequest::read(at, buffer.clone()).because(Cause::Record);
        self.members[member].submit(Class::Upkeep, request).await.ok()?;
        let bytes = buffer.to_vec();
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        if bytes[..8] != MAGIC {
            return None;
        }
        let length = usize::try_from(u64_at(56)).ok()?;
        let roots = bytes.get(HEAD_BYTES..HEAD_BYTES.checked_add(length)?)?;
        let crc = u32::from_le_bytes(bytes[8..12].try_into().expect("4 bytes"));
        if crc32c(&bytes[16..HEAD_BYTES + length]) != crc {
            return None;
        }
        let is_missing = |member: &usize| bytes[24 + member / 8] >> (member % 8) & 1 == 1;
        let missing = (0..self.members.len()).filter(is_missing).collect();
        Some((u64_at(16), missing, roots.to_vec()))
    }

    async fn write(&self) -> Result<(), String> {
        loop {
            let missing = self.missing.get();
            let generation = self.generation.get() + 1;
            self.generation.set(generation);
            let bytes = self.encode(generation, &missing)?;
            let at = self.start_bytes + generation % 2 * self.slot_bytes;
            let sent: Vec<_> = self
                .members
                .iter()
                .enumerate()
                .filter(|(member, _)| !missing.contains(*member))
                .map(|(number, member)| {
                    let request = IoRequest::write(at, bytes.clone(), true).because(Cause::Record);
                    (number, member.submit(Class::Upkeep, request))
                })
                .collect();
            let (mut written, mut refused) = (0, None);
            for (member, answer) in sent {
                match answer.await {
                    Ok(()) => written += 1,
                    Err(error) => refused = Some((member, error)),
                }
            }
            let Some((member, error)) = refused else { return Ok(()) };
            if written == 0 {
                return Err(error.to_string());
            }
            // The next generation says which drive misses it.
            let mut missing = missing;
            missing.insert(member);
            self.missing.set(missing);
        }
    }

    fn encode(&self, generation: u64, missing: &MemberSet) -> Result<Buffer, String> {
        let roots = self.current.borrow();
        let length = HEAD_BYTES + roots.len();
        if length as u64 > self.slot_bytes {
            return Err(format!("{length} bytes of roots exceed the {} bytes of a slot", self.slot_bytes));
        }
        let mut bytes = vec![0; length.next_multiple_of(4096)];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[16..24].copy_from_slice(&generation.to_le_bytes());
        missing.iter().for_each(|member| bytes[24 + member / 8] |= 1 << (member % 8));
        bytes[56..64].copy_from_slice(&(roots.len() as u64).to_le_bytes());
        bytes[HEAD_BYTES..length].copy_from_slice(&roots);
        let crc = crc32c(&bytes[16..length]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        Ok(Buffer::from_bytes(&bytes))
    }
}

impl RootStore for SlotRoots {
    fn commit(&self, roots: Vec<u8>) -> LocalFuture<'_, Result<(), String>> {
        Box::pin(async move {
            let _turn = self.turn.acquire(1).await;
            *self.current.borrow_mut() = roots;
            self.write().await
        })
    }

    fn exclude(&self, missing: MemberSet) -> LocalFuture<'_, Result<(), String>> {
        Box::pin(async move {
            let _turn = self.turn.acquire(1).await;
            self.missing.set(self.missing.get().iter().chain(missing.iter()).collect());
            self.write().await
        })
    }

    fn include(&self, member: usize) -> LocalFuture<'_, Result<(), String>> {
        Box::pin(async move {
            let _turn = self.turn.acquire(1).await;
            let mut missing = self.missing.get();
            missing.remove(member);
            self.missing.set(missing);
            self.write().await
        })
    }
}
