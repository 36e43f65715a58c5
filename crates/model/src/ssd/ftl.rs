//! Page-mapped translation with greedy garbage collection, on a sample of a drive's pages.

const NONE: u32 = u32::MAX;
/// Blocks kept free: the one that collection writes into, and one in hand.
const SPARE_BLOCKS: usize = 2;

/// Extra work of the drive for one page write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Pages copied out of blocks to be erased.
    pub copies: u32,
    /// Blocks erased.
    pub erases: u32,
}

/// Map of the pages. Host writes and copies fill blocks of their own, so that old pages gather.
#[derive(Clone, Debug)]
pub struct Ftl {
    pages_per_block: u32,
    /// Physical page of each logical page.
    map: Vec<u32>,
    /// Logical page of each physical page.
    owner: Vec<u32>,
    valid: Vec<u32>,
    /// Erased blocks, the next one last.
    free: Vec<u32>,
    host: Cursor,
    collected: Cursor,
}

/// A block being filled.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    block: u32,
    next: u32,
}

impl Ftl {
    /// Empty. Panics without pages, and below one percent of over-provisioning.
    pub fn new(logical_pages: u32, pages_per_block: u32, over_provisioning_percent: f64) -> Self {
        assert!(logical_pages > 0 && pages_per_block > 0 && over_provisioning_percent >= 1.0);
        let physical = f64::from(logical_pages) * (1.0 + over_provisioning_percent / 100.0);
        let blocks = (physical / f64::from(pages_per_block)).round() as u32;
        let least = logical_pages.div_ceil(pages_per_block) + 1 + SPARE_BLOCKS as u32;
        let blocks = blocks.max(least);
        let full = Cursor { block: NONE, next: pages_per_block };
        Self {
            pages_per_block,
            map: vec![NONE; logical_pages as usize],
            owner: vec![NONE; (blocks * pages_per_block) as usize],
            valid: vec![0; blocks as usize],
            free: (0..blocks).rev().collect(),
            host: full,
            collected: full,
        }
    }

    /// The host writes a page; panics beyond the logical pages.
    pub fn write(&mut self, page: u32) -> Written {
        let mut written = Written::default();
        if self.host.next == self.pages_per_block {
            while self.free.len() <= SPARE_BLOCKS {
                self.collect(&mut written);
            }
            self.host =
                Cursor { block: self.free.pop().expect("more than the spare blocks are free"), next: 0 };
        }
        let mut cursor = self.host;
        self.put(page, &mut cursor);
        self.host = cursor;
        written
    }

    /// Forgets a page.
    pub fn discard(&mut self, page: u32) {
        let old = std::mem::replace(&mut self.map[page as usize], NONE);
        if old != NONE {
            self.owner[old as usize] = NONE;
            self.valid[(old / self.pages_per_block) as usize] -= 1;
        }
    }

    fn put(&mut self, page: u32, cursor: &mut Cursor) {
        self.discard(page);
        let place = cursor.block * self.pages_per_block + cursor.next;
        cursor.next += 1;
        self.map[page as usize] = place;
        self.owner[place as usize] = page;
        self.valid[cursor.block as usize] += 1;
    }

    /// Empties the block with the fewest valid pages.
    fn collect(&mut self, written: &mut Written) {
        let open = [self.host, self.collected].map(|cursor| match cursor.next < self.pages_per_block {
            true => cursor.block,
            false => NONE,
        });
        let mut victim = (u32::MAX, NONE);
        let mut is_free = vec![false; self.valid.len()];
        self.free.iter().for_each(|block| is_free[*block as usize] = true);
        for (block, valid) in self.valid.iter().enumerate() {
            if !is_free[block] && !open.contains(&(block as u32)) {
                victim = victim.min((*valid, block as u32));
            }
        }
        let block = victim.1;
        assert!(block != NONE && victim.0 < self.pages_per_block, "there is room to be gained");
        let first = block * self.pages_per_block;
        for place in first..first + self.pages_per_block {
            let page = self.owner[place as usize];
            if page == NONE {
                continue;
            }
            if self.collected.next == self.pages_per_block {
                let next = self.free.pop().expect("a spare block is free");
                self.collected = Cursor { block: next, next: 0 };
            }
            let mut cursor = self.collected;
            self.put(page, &mut cursor);
            self.collected = cursor;
            written.copies += 1;
        }
        written.erases += 1;
        self.free.insert(0, block);
    }
}
