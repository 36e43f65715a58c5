//! The checksum pages of a volume: loads, changes, creates and evicts them.
//!
//! A page is loaded once, however many tasks wait for it. Dirty pages stay in memory until a
//! checkpoint has written them. When they take half of the cache, the task that needs another page
//! runs a checkpoint first, so that dirty pages never fill the cache.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;

use futures_util::future::{join, join_all};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use stripewise_drive::{BufferPool, DriveError, DriveErrorKind, Event};

use super::cache::{Cache, Pin, Pinned, pages_of, parts, whole_blocks};
use super::checkpoint_state::CheckpointState;
use super::entries::{Page, Recorded};
use super::page::{self, Decoded, Identity, Image, PAGE_BYTES};
use super::{
    BLOCK_BYTES, BLOCKS_PER_PAGE, ChecksumCounters, ChecksumOptions, ChecksumSpec, PAGE_COVERS_BYTES, PageId,
    PageIo, Side,
};
use crate::error::ArrayError;
use crate::mutation::{self, Mutation};

/// Minimum size of a cache.
const MIN_CACHE_BYTES: usize = 32 << 10;

/// Checksums of one volume. All offsets are in bytes of a column's linear space: the row is `offset
/// / slab_bytes`.
pub struct Checksums {
    pub(super) buffers: BufferPool,
    pub(super) spec: ChecksumSpec,
    pub(super) io: Rc<dyn PageIo>,
    pub(super) identity: Identity,
    pub(super) pages_per_slab_log2: u32,
    pub(super) window_pages: usize,
    pub(super) cache: Cache,
    /// Pages being loaded, each with the event that ends the wait.
    loading: RefCell<FxHashMap<u64, Rc<Event>>>,
    /// Number of times that outdated places of pages became current.
    reloads: Cell<u64>,
    pub(super) dirty: RefCell<Vec<Rc<Page>>>,
    pub(super) dirty_pages: Cell<usize>,
    /// Pages that the next checkpoint writes to one new place only ([`Self::fill_places`]).
    pub(super) to_fill: RefCell<Vec<(Pinned, Side)>>,
    pub(super) next_stamp: Cell<u64>,
    pub(super) prefer_newest: bool,
    pub(super) checkpoints: CheckpointState,
    pub(super) counters: Cell<ChecksumCounters>,
}

/// Result of reading one place of a page.
pub(super) enum Found {
    Valid(Image),
    /// Never written by this volume.
    Blank,
    /// Anything else.
    Wrong,
    /// The drive gave an error, which was reported.
    Unreadable,
    /// The place does not exist, or is not current.
    Missing,
    /// Phantom buffer of a performance model: no bytes.
    Phantom,
}

impl Found {
    fn stamp(&self) -> Option<u64> {
        match self {
            Self::Valid(image) => Some(image.stamp),
            _ => None,
        }
    }

    fn image(self) -> Option<Image> {
        match self {
            Self::Valid(image) => Some(image),
            _ => None,
        }
    }

    /// True if the place answered, so that it can be written.
    fn is_there(&self) -> bool {
        !matches!(self, Self::Missing | Self::Phantom)
    }
}

/// Faults found when a page was loaded or confirmed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Noted {
    /// One place was invalid or outdated, and will be rewritten.
    pub repaired: bool,
    /// No place was valid.
    pub lost: bool,
}

/// Combined result of reading the places of a page.
pub(super) struct Newest {
    /// The newest valid page.
    pub image: Option<Image>,
    /// Both places were read.
    pub both: bool,
    /// Places that exist and do not hold the newest known page.
    pub behind: SmallVec<[Side; 2]>,
    /// Places with contents that are wrong, or outdated by a lost write.
    pub wrong: SmallVec<[Side; 2]>,
    /// The places held something, none of it valid.
    pub lost: bool,
    /// Both places answered.
    pub at_both_places: bool,
    /// Phantom buffers: no bytes.
    is_phantom: bool,
}

impl Newest {
    /// `known`: stamp of the page in memory, if it was written to the places.
    pub(super) fn of(own: Found, copy: Found, known: Option<u64>) -> Self {
        let newest = own.stamp().max(copy.stamp()).max(known);
        // If one place was never written, neither was the other: a cut tore the very first write of
        // the page.
        let lost = newest.is_none()
            && !matches!(own, Found::Blank)
            && !(matches!(copy, Found::Blank) && matches!(own, Found::Wrong))
            && [&own, &copy].iter().any(|found| matches!(found, Found::Wrong | Found::Unreadable));
        let both = [&own, &copy];
        let mut result = Self {
            at_both_places: !both.iter().any(|found| matches!(found, Found::Missing | Found::Unreadable)),
            is_phantom: both.iter().any(|found| matches!(found, Found::Phantom)),
            lost,
            ..Self::own(None, true)
        };
        for (found, side) in [(&own, Side::Own), (&copy, Side::Copy)] {
            let is_behind = found.is_there() && found.stamp() < newest;
            if is_behind {
                result.behind.push(side);
            }
            // Stamp 0 was written while the page was unknown: not a lost write.
            let is_empty = found.stamp() == Some(0);
            let is_wrong = is_behind && !is_empty && !matches!(found, Found::Unreadable);
            if matches!(found, Found::Wrong) || is_wrong {
                result.wrong.push(side);
            }
        }
        result.image = if own.stamp() >= copy.stamp() { own.image() } else { copy.image() };
        result
    }

    /// Result if only the own place was read.
    fn own(image: Option<Image>, both: bool) -> Self {
        let (behind, wrong) = (SmallVec::new(), SmallVec::new());
        Self { image, both, behind, wrong, lost: false, at_both_places: false, is_phantom: false }
    }
}

/// Marks a page as being loaded, and wakes the waiting tasks when the load ends, with or without an
/// error.
struct Loading<'a> {
    checksums: &'a Checksums,
    key: u64,
    event: Rc<Event>,
}

impl<'a> Loading<'a> {
    fn begin(checksums: &'a Checksums, key: u64) -> Self {
        let event = Rc::new(Event::new());
        checksums.loading.borrow_mut().insert(key, event.clone());
        Self { checksums, key, event }
    }
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        self.checksums.loading.borrow_mut().remove(&self.key);
        self.event.notify_all();
    }
}

impl Checksums {
    /// Creates the checksums of a volume; reads nothing yet.
    pub fn new(
        buffers: &BufferPool,
        spec: ChecksumSpec,
        options: ChecksumOptions,
        io: Rc<dyn PageIo>,
    ) -> Rc<Self> {
        assert!(
            spec.slab_bytes.is_power_of_two() && (PAGE_COVERS_BYTES..=128 << 20).contains(&spec.slab_bytes),
            "a slab of {} bytes",
            spec.slab_bytes
        );
        Rc::new(Self {
            buffers: buffers.clone(),
            identity: Identity::new(&spec),
            pages_per_slab_log2: (spec.slab_bytes / PAGE_COVERS_BYTES).trailing_zeros(),
            spec,
            io,
            window_pages: options.window_pages.max(1),
            cache: Cache::new(options.cache_bytes.max(MIN_CACHE_BYTES)),
            loading: RefCell::default(),
            reloads: Cell::new(0),
            dirty: RefCell::default(),
            dirty_pages: Cell::new(0),
            to_fill: RefCell::default(),
            next_stamp: Cell::new(options.first_stamp.max(1)),
            prefer_newest: options.prefer_newest,
            checkpoints: CheckpointState::default(),
            counters: Cell::default(),
        })
    }

    /// Counters since opening.
    pub fn counters(&self) -> ChecksumCounters {
        ChecksumCounters { evictions: self.cache.evictions(), ..self.counters.get() }
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut ChecksumCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// Memory of all cached pages, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.cache.used_bytes()
    }

    /// Bytes of pages that a checkpoint would write to each of the two places.
    #[cfg(test)]
    pub(crate) fn dirty_bytes(&self) -> u64 {
        (self.dirty_pages.get() * PAGE_BYTES) as u64
    }

    pub(super) fn key(column: u16, number: u64) -> u64 {
        debug_assert!(number < 1 << 48);
        number << 16 | u64::from(column)
    }

    pub(super) fn id(&self, column: u16, number: u64) -> PageId {
        let row = number >> self.pages_per_slab_log2;
        PageId { row, column, page: (number - (row << self.pages_per_slab_log2)) as u16 }
    }

    /// Number, within the column, of a page of a row.
    pub(super) fn number(&self, row: u64, page: u16) -> u64 {
        (row << self.pages_per_slab_log2) + u64::from(page)
    }

    pub(super) fn pages_per_slab(&self) -> u16 {
        1 << self.pages_per_slab_log2
    }

    /// Maximum memory of the dirty pages.
    fn dirty_memory_bytes(&self) -> usize {
        self.dirty_pages.get() * (size_of::<Page>() + 4 * BLOCKS_PER_PAGE)
    }

    /// Runs a checkpoint if dirty pages take half of the cache.
    async fn make_room(&self) -> Result<(), ArrayError> {
        if self.dirty_memory_bytes() <= self.cache.limit_bytes() / 2 {
            return Ok(());
        }
        match self.checkpoint().await {
            // Clients write nothing more, and their reads need no more memory than there is.
            Err(ArrayError::FileSystemFull { .. }) => Ok(()),
            result => result.map(drop),
        }
    }

    pub(super) fn mark_dirty(&self, page: &Rc<Page>) {
        if page.dirty.replace(true) || page.forgotten.get() {
            return;
        }
        self.dirty.borrow_mut().push(page.clone());
        self.dirty_pages.set(self.dirty_pages.get() + 1);
    }

    async fn read_side(&self, id: PageId, side: Side) -> Result<Found, ArrayError> {
        match self.try_read_side(id, side).await {
            Ok(found) => Ok(found),
            Err(error) => {
                self.io.report(id, side, &error).await?;
                Ok(Found::Unreadable)
            }
        }
    }

    /// Reads one place of a page; an error of the drive is not reported.
    pub(super) async fn try_read_side(&self, id: PageId, side: Side) -> Result<Found, DriveError> {
        let buffer = self.buffers.allocate(PAGE_BYTES);
        match self.io.read(id, side, buffer.clone()).await {
            Ok(()) => {}
            Err(error) if error.kind == DriveErrorKind::Gone => return Ok(Found::Missing),
            Err(error) => return Err(error),
        }
        let decoded = buffer.with(|bytes| page::decode(bytes, self.spec.volume_id, id));
        Ok(match decoded {
            None => Found::Phantom,
            Some(Decoded::Blank) => Found::Blank,
            Some(Decoded::Wrong) => Found::Wrong,
            Some(Decoded::Page(image)) => {
                // Guards against a `first_stamp` that is too low: later writes are newer.
                self.next_stamp.set(self.next_stamp.get().max(image.stamp.saturating_add(1)));
                Found::Valid(image)
            }
        })
    }

    pub(super) async fn read_both(&self, id: PageId, known: Option<u64>) -> Result<Newest, ArrayError> {
        let (own, copy) = join(self.read_side(id, Side::Own), self.read_side(id, Side::Copy)).await;
        Ok(Newest::of(own?, copy?, known))
    }

    async fn read_page(&self, id: PageId, both: bool) -> Result<Newest, ArrayError> {
        if both {
            return self.read_both(id, None).await;
        }
        match self.read_side(id, Side::Own).await? {
            Found::Valid(image) => Ok(Newest::own(Some(image), false)),
            Found::Phantom => Ok(Newest::own(None, true)),
            own => Ok(Newest::of(own, self.read_side(id, Side::Copy).await?, None)),
        }
    }

    /// Counts faults, and reports wrong places.
    pub(super) fn note(&self, id: PageId, newest: &Newest) -> Noted {
        self.count(|counters| {
            counters.repaired_pages += u64::from(!newest.behind.is_empty());
            counters.lost_pages += u64::from(newest.lost);
        });
        for &side in &newest.wrong {
            self.io.found_wrong(id, side);
        }
        Noted { repaired: !newest.behind.is_empty(), lost: newest.lost }
    }

    pub(super) fn new_page(&self, column: u16, number: u64, image: Option<&Image>) -> Rc<Page> {
        let id = self.id(column, number);
        let base = self.identity.base(id.row, column);
        let page = Page::new(Self::key(column, number), id, base, image);
        Rc::new(page)
    }

    /// Returns the page, loading it if necessary.
    pub(super) async fn page(&self, column: u16, number: u64) -> Result<Pinned, ArrayError> {
        Ok(self.load(column, number, self.prefer_newest).await?.0)
    }

    /// Returns the page, loading it if necessary (with `both`, from both places), and the faults
    /// found if this call loaded it.
    pub(super) async fn load(
        &self,
        column: u16,
        number: u64,
        both: bool,
    ) -> Result<(Pinned, Option<Noted>), ArrayError> {
        let key = Self::key(column, number);
        loop {
            if let Some(page) = self.cache.get(key) {
                return Ok((Pinned::new(page), None));
            }
            let others = self.loading.borrow().get(&key).cloned();
            if let Some(event) = others {
                event.wait().await;
                continue;
            }
            let _loading = Loading::begin(self, key);
            self.make_room().await?;
            let reloads = self.reloads.get();
            let newest = self.read_page(self.id(column, number), both).await?;
            if self.reloads.get() != reloads {
                continue;
            }
            // Another task may have created the page during the read; then the result of the read
            // is obsolete.
            if let Some(page) = self.cache.get(key) {
                return Ok((Pinned::new(page), None));
            }
            self.count(|counters| counters.loads += 1);
            let noted = self.note(self.id(column, number), &newest);
            let page = self.new_page(column, number, newest.image.as_ref());
            page.confirmed.set(newest.both);
            page.at_both_places.set(newest.at_both_places);
            if newest.is_phantom {
                // The stamp of a page that was written once.
                page.stamp.set(1);
            }
            if newest.lost {
                page.doubt_all();
            }
            let pinned = Pinned::new(page.clone());
            self.cache.insert(page);
            if !newest.behind.is_empty() {
                self.mark_dirty(&pinned);
            }
            return Ok((pinned, Some(noted)));
        }
    }

    /// The pages of a range of a column, if all of them are in memory.
    pub(crate) fn try_pin(&self, column: u16, offset_bytes: u64, length_bytes: u64) -> Option<Pin> {
        let numbers = pages_of(offset_bytes, length_bytes);
        let first = numbers.start;
        let pages: Option<SmallVec<_>> =
            numbers.map(|number| self.cache.get(Self::key(column, number)).map(Pinned::new)).collect();
        Some(Pin { column, first, pages: pages? })
    }

    /// Pins the pages of a range of a column, loading them if necessary. They stay in memory as
    /// long as the pin lives.
    pub async fn pin(&self, column: u16, offset_bytes: u64, length_bytes: u64) -> Result<Pin, ArrayError> {
        if let Some(pin) = self.try_pin(column, offset_bytes, length_bytes) {
            return Ok(pin);
        }
        let numbers = pages_of(offset_bytes, length_bytes);
        let first = numbers.start;
        let pages = join_in_order(numbers.map(|number| self.page(column, number))).await?;
        Ok(Pin { column, first, pages })
    }

    /// Reads ahead pages next to one that is not in memory, as far as the budget allows
    /// (`cache.rs`); they are evicted first, unless they are used. An error surfaces when the page
    /// is needed.
    pub(crate) async fn load_beside(&self, column: u16, numbers: impl Iterator<Item = u64>) {
        let lacking: Vec<u64> =
            numbers.filter(|number| !self.cache.has(Self::key(column, *number))).collect();
        if !self.cache.take_ahead(lacking.len()) {
            return;
        }
        let load = async |number: u64| {
            if let Ok((page, Some(_))) = self.load(column, number, self.prefer_newest).await {
                page.is_ahead.set(true);
                page.referenced.set(false);
            }
        };
        join_all(lacking.into_iter().map(load)).await;
    }

    /// Starts empty pages for a range of a column that comes into use: they record nothing,
    /// whatever lies on the drives, and the next checkpoint writes them. Called before a region's
    /// first write, and before a newly allocated slab is used. Pages that the range covers only
    /// partly are emptied whole.
    pub async fn fresh(&self, column: u16, offset_bytes: u64, length_bytes: u64) -> Result<Pin, ArrayError> {
        let numbers = pages_of(offset_bytes, length_bytes);
        let mut pin = Pin { column, first: numbers.start, pages: SmallVec::new() };
        for number in numbers {
            self.make_room().await?;
            let page = match self.cache.get(Self::key(column, number)) {
                Some(page) => {
                    self.cache.change(&page, |page| page.clear(0..BLOCKS_PER_PAGE));
                    page
                }
                None => {
                    let page = self.new_page(column, number, None);
                    // A version that no checkpoint has written.
                    page.version.set(1);
                    self.cache.insert(page.clone());
                    page
                }
            };
            page.confirmed.set(true);
            page.at_both_places.set(true);
            self.mark_dirty(&page);
            pin.pages.push(Pinned::new(page));
        }
        Ok(pin)
    }

    /// Records the checksums of blocks. `sums` come from [`Self::compute`]; `sequence` is that of
    /// the write, not 0 (see [`recorded_sequence`]).
    pub fn set(&self, pin: &Pin, offset_bytes: u64, sums: &[u32], sequence: u32) {
        assert!(sequence != 0, "sequence 0 means that nothing is recorded");
        let blocks = whole_blocks(offset_bytes, sums.len() as u64 * BLOCK_BYTES);
        let mut rest = sums;
        for part in parts(blocks) {
            let (these, later) = rest.split_at(part.blocks.len());
            rest = later;
            let page = pin.page(part.number);
            self.cache.change(page, |page| page.set(part.blocks.start, these, sequence));
            self.mark_dirty(page);
        }
    }

    /// Erases the recorded checksums of blocks.
    pub fn clear(&self, pin: &Pin, offset_bytes: u64, length_bytes: u64) {
        for part in parts(whole_blocks(offset_bytes, length_bytes)) {
            let page = pin.page(part.number);
            self.cache.change(page, |page| page.clear(part.blocks));
            self.mark_dirty(page);
        }
    }

    /// Returns the recorded checksum of the block at `offset_bytes`.
    pub fn expected(&self, pin: &Pin, offset_bytes: u64) -> Option<Recorded> {
        let block = offset_bytes / BLOCK_BYTES;
        pin.page(block / BLOCKS_PER_PAGE as u64).get((block % BLOCKS_PER_PAGE as u64) as usize)
    }

    /// Drops the pages of whole regions that are durably recorded as unwritten, without writing
    /// them: their places on the drives are not read again before [`Self::fresh`]. Pinned pages are
    /// emptied instead.
    pub fn forget(&self, column: u16, offset_bytes: u64, length_bytes: u64) {
        let numbers = pages_of(offset_bytes, length_bytes);
        let pages = if numbers.end - numbers.start > self.cache.pages() as u64 {
            self.cache.select(|key| key as u16 == column && numbers.contains(&(key >> 16)))
        } else {
            numbers.filter_map(|number| self.cache.get(Self::key(column, number))).collect()
        };
        for page in pages {
            if page.pins.get() > 0 {
                self.cache.change(&page, |page| page.clear(0..BLOCKS_PER_PAGE));
                self.mark_dirty(&page);
            } else {
                self.drop_page(&page);
            }
        }
    }

    /// Drops the clean pages of which a place was missing, so that they are read again: a drive has
    /// come in that may hold it. Reading the other pages again would bring nothing new and cost a
    /// seek or two each.
    pub(crate) fn reload_incomplete(&self) {
        self.reloads.set(self.reloads.get() + 1);
        if mutation::is_chosen(Mutation::IncompletePagesStay) {
            return;
        }
        for page in self.cache.select(|_| true) {
            if page.pins.get() == 0 && !page.dirty.get() && !page.at_both_places.get() {
                self.drop_page(&page);
            }
        }
    }

    fn drop_page(&self, page: &Rc<Page>) {
        self.cache.forget(page);
        page.forgotten.set(true);
        if page.dirty.replace(false) {
            self.dirty_pages.set(self.dirty_pages.get() - 1);
            self.dirty.borrow_mut().retain(|other| !Rc::ptr_eq(other, page));
        }
    }
}

/// Awaits all futures concurrently; returns the first error.
async fn join_in_order<F: Future<Output = Result<Pinned, ArrayError>>>(
    futures: impl Iterator<Item = F>,
) -> Result<SmallVec<[Pinned; 2]>, ArrayError> {
    join_all(futures).await.into_iter().collect()
}

/// The low bits of a journal sequence, as pages record them: never 0, which means that nothing is
/// recorded.
pub(crate) fn recorded_sequence(journal_sequence: u64) -> u32 {
    (journal_sequence as u32).max(1)
}
