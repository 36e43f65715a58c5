//! The memory of a guest, as the front end shares it: regions with addresses of the guest and of
//! the front end's process.
//!
//! Expected faults: regions outside their files, that overlap or wrap around (refused), addresses
//! outside all regions (`None`), and files that are truncated later
//! ([`GuestMemory::check`]).

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use stripewise_runtime::SharedMemory;

use super::wire::{RegionAt, malformed};

/// Maximum memory that one front end shares.
const MAX_BYTES: u64 = 8 << 40;
/// Alignment of regions in their files; numbers in rings are aligned in the region.
const PAGE_BYTES: u64 = 4096;
/// Maximum regions.
pub(super) const MAX_REGIONS: usize = 32;

/// A region.
pub(super) struct Region {
    place: RegionAt,
    pub(super) memory: SharedMemory,
}

impl Region {
    /// Maps a region of `file`.
    pub(super) fn new(place: RegionAt, file: OwnedFd) -> io::Result<Rc<Self>> {
        let end = |start: u64| start.checked_add(place.length_bytes);
        if end(place.guest_address).is_none() || end(place.user_address).is_none() {
            return Err(malformed("a region of memory wraps around"));
        }
        if !place.file_offset_bytes.is_multiple_of(PAGE_BYTES) {
            return Err(malformed("a region of memory does not begin with a page of its file"));
        }
        if place.length_bytes > MAX_BYTES {
            return Err(malformed("a region of memory is longer than 8 TiB"));
        }
        let memory = SharedMemory::new(&file, place.file_offset_bytes, place.length_bytes)?;
        Ok(Rc::new(Self { place, memory }))
    }

    pub(super) fn is_at(&self, place: &RegionAt) -> bool {
        let key = |place: &RegionAt| (place.guest_address, place.user_address, place.length_bytes);
        key(&self.place) == key(place)
    }
}

/// Bytes within one region.
#[derive(Clone)]
pub(super) struct Place {
    pub region: Rc<Region>,
    pub at: usize,
}

/// A buffer of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub address: u64,
    pub length: u32,
}

/// All regions, by address of the guest.
#[derive(Clone, Default)]
pub(super) struct GuestMemory {
    regions: Vec<Rc<Region>>,
}

impl GuestMemory {
    pub(super) fn new(mut regions: Vec<Rc<Region>>) -> io::Result<Self> {
        regions.sort_by_key(|region| region.place.guest_address);
        let overlap = |pair: &[Rc<Region>]| {
            pair[0].place.guest_address + pair[0].place.length_bytes > pair[1].place.guest_address
        };
        if regions.windows(2).any(overlap) {
            return Err(malformed("regions of memory overlap"));
        }
        let total = regions.iter().map(|region| region.place.length_bytes).fold(0, u64::saturating_add);
        if regions.len() > MAX_REGIONS || total > MAX_BYTES {
            return Err(malformed(format!("more than {MAX_REGIONS} regions or 8 TiB of memory")));
        }
        Ok(Self { regions })
    }

    pub(super) fn regions(&self) -> &[Rc<Region>] {
        &self.regions
    }

    /// Fails if a file of the memory was truncated. Then its contents are zeros, and nothing that
    /// was read from them may be used.
    pub(super) fn check(&self) -> io::Result<()> {
        match self.regions.iter().any(|region| region.memory.is_lost()) {
            true => Err(malformed("the file of its memory was truncated")),
            false => Ok(()),
        }
    }

    /// The place of `length` bytes at an address of the front end's process.
    pub(super) fn at_user(&self, address: u64, length: u64) -> Option<Place> {
        self.regions.iter().find_map(|region| {
            let at = address.checked_sub(region.place.user_address)?;
            let end = at.checked_add(length)?;
            (end <= region.place.length_bytes).then(|| Place { region: region.clone(), at: at as usize })
        })
    }

    /// The region with an address of the guest, the offset in it, and the bytes from there on.
    fn at_guest(&self, address: u64) -> Option<(&SharedMemory, usize, u64)> {
        let index = self.regions.partition_point(|region| region.place.guest_address <= address);
        let region = &self.regions[index.checked_sub(1)?];
        let at = address - region.place.guest_address;
        let rest = region.place.length_bytes.checked_sub(at).filter(|rest| *rest > 0)?;
        Some((&region.memory, at as usize, rest))
    }

    /// True if all of the segment is in the memory; it may extend over adjacent regions.
    pub(super) fn has(&self, segment: Segment) -> bool {
        let (mut address, mut rest) = (segment.address, u64::from(segment.length));
        while rest > 0 {
            let Some((_, _, here)) = self.at_guest(address) else { return false };
            let step = here.min(rest);
            rest -= step;
            let Some(next) = address.checked_add(step) else { return rest == 0 };
            address = next;
        }
        true
    }

    /// Calls `copy` with the pieces of memory of `length` bytes of `segments`, from byte `skip` on,
    /// each with its offset among these bytes.
    ///
    /// # Panics
    /// If the segments are not in the memory, or shorter.
    fn pieces(
        &self,
        segments: &[Segment],
        mut skip: u64,
        length: usize,
        mut copy: impl FnMut(&SharedMemory, usize, std::ops::Range<usize>),
    ) {
        let mut done = 0;
        for segment in segments {
            let skipped = skip.min(u64::from(segment.length));
            skip -= skipped;
            let mut address = segment.address + skipped;
            let mut rest = (u64::from(segment.length) - skipped).min((length - done) as u64);
            while rest > 0 {
                let (memory, at, here) = self.at_guest(address).expect("segments were checked");
                let step = here.min(rest);
                copy(memory, at, done..done + step as usize);
                done += step as usize;
                rest -= step;
                address = address.wrapping_add(step);
            }
            if done == length {
                return;
            }
        }
        assert_eq!(done, length, "a request stays within its segments");
    }

    /// Copies bytes out of segments of this memory ([`Self::has`]), from byte `skip` on.
    pub(super) fn read(&self, segments: &[Segment], skip: u64, into: &mut [u8]) {
        let length = into.len();
        self.pieces(segments, skip, length, |memory, at, range| memory.read(at, &mut into[range]));
    }

    /// Copies bytes into segments of this memory, from byte `skip` on.
    pub(super) fn write(&self, segments: &[Segment], skip: u64, from: &[u8]) {
        self.pieces(segments, skip, from.len(), |memory, at, range| memory.write(at, &from[range]));
    }
}
