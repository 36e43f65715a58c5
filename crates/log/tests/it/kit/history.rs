//! The judge: contents that each block may have.
//!
//! A block's content names the block and a version. A version is durable when a flush that began
//! after its write has ended. A crash may leave any version from the durable one to the newest.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use stripewise_drive::{Buffer, Context, SplitMix64};
use stripewise_log::{Log, LogError};

pub const BLOCK: usize = 4096;

#[derive(Clone, Default)]
struct Versions {
    durable: u32,
    acknowledged: u32,
    newest: u32,
    /// Versions that are discards.
    zeroes: Vec<u32>,
}

pub struct History {
    blocks: RefCell<Vec<Versions>>,
    next: Cell<u32>,
}

/// Reads a range of a snapshot.
pub async fn read_snapshot(log: &Log, name: &str, offset: u64, length: usize) -> Result<Buffer, LogError> {
    log.snapshot(name)?.read(offset, length).await
}

/// Contents of a block at a version.
pub fn content(lba: u64, version: u32) -> Vec<u8> {
    let mut random = SplitMix64::new(lba << 32 | u64::from(version));
    let mut bytes = Vec::with_capacity(BLOCK);
    bytes.extend(lba.to_le_bytes());
    bytes.extend(u64::from(version).to_le_bytes());
    let word = random.next_u64().to_le_bytes();
    while bytes.len() < BLOCK {
        bytes.extend(word);
    }
    bytes
}

impl History {
    pub fn new(blocks: u64) -> Rc<Self> {
        Rc::new(Self { blocks: RefCell::new(vec![Versions::default(); blocks as usize]), next: Cell::new(1) })
    }

    /// The state of this instant, as the contents of a snapshot that is begun now.
    pub fn copy(&self) -> Rc<Self> {
        Rc::new(Self { blocks: self.blocks.clone(), next: self.next.clone() })
    }

    /// Allows what was written to another history since this is a copy of it.
    pub fn allow_up_to(&self, now: &Self) {
        for (block, now) in self.blocks.borrow_mut().iter_mut().zip(now.blocks.borrow().iter()) {
            block.newest = now.newest;
            block.zeroes.clone_from(&now.zeroes);
        }
    }

    /// Begins versions where another history is.
    pub fn go_on_after(&self, other: &Self) {
        self.next.set(self.next.get().max(other.next.get()));
    }

    pub fn blocks(&self) -> u64 {
        self.blocks.borrow().len() as u64
    }

    fn begin(&self, lba: u64, count: u64, is_discard: bool) -> u32 {
        let version = self.next.get();
        self.next.set(version + 1);
        for block in &mut self.blocks.borrow_mut()[lba as usize..(lba + count) as usize] {
            block.newest = version;
            if is_discard {
                block.zeroes.push(version);
            }
        }
        version
    }

    fn acknowledge(&self, lba: u64, count: u64, version: u32, is_durable: bool) {
        for block in &mut self.blocks.borrow_mut()[lba as usize..(lba + count) as usize] {
            block.acknowledged = block.acknowledged.max(version);
            if is_durable {
                block.durable = block.durable.max(version);
            }
        }
    }

    pub async fn write(&self, log: &Log, lba: u64, count: u64, fua: bool) -> Result<(), LogError> {
        let version = self.begin(lba, count, false);
        let bytes = (lba..lba + count).map(|lba| content(lba, version)).collect::<Vec<_>>().concat();
        log.write(lba * BLOCK as u64, Buffer::from_bytes(&bytes), fua).await?;
        self.acknowledge(lba, count, version, fua);
        Ok(())
    }

    pub async fn discard(&self, log: &Log, lba: u64, count: u64) -> Result<(), LogError> {
        let version = self.begin(lba, count, true);
        log.discard(lba * BLOCK as u64, count * BLOCK as u64).await?;
        self.acknowledge(lba, count, version, false);
        Ok(())
    }

    pub async fn flush(&self, log: &Log) -> Result<(), LogError> {
        let before: Vec<u32> = self.blocks.borrow().iter().map(|block| block.acknowledged).collect();
        log.flush().await?;
        for (block, before) in self.blocks.borrow_mut().iter_mut().zip(before) {
            block.durable = block.durable.max(before);
        }
        Ok(())
    }

    /// Compares all blocks with what they may be; from now on they are what was found.
    pub async fn judge(&self, log: &Log, after_crash: bool, seed: u64, when: &str) {
        self.judge_view(log, None, after_crash, seed, when).await;
    }

    /// The same for a snapshot.
    pub async fn judge_snapshot(&self, log: &Log, name: &str, seed: u64, when: &str) {
        self.judge_view(log, Some(name), false, seed, &format!("{when}: snapshot {name}")).await;
    }

    async fn judge_view(&self, log: &Log, name: Option<&str>, after_crash: bool, seed: u64, when: &str) {
        let mut lba = 0;
        while lba < self.blocks() {
            let count = (self.blocks() - lba).min(61);
            let (offset, length) = (lba * BLOCK as u64, count as usize * BLOCK);
            let read = match name {
                None => log.read(offset, length).await,
                Some(name) => read_snapshot(log, name, offset, length).await,
            };
            let bytes =
                read.unwrap_or_else(|error| panic!("seed {seed}: {when}: blocks {lba}+{count}: {error}"));
            for (lba, bytes) in (lba..).zip(bytes.to_vec().chunks_exact(BLOCK)) {
                self.judge_block(lba, bytes, after_crash, seed, when);
            }
            lba += count;
        }
    }

    fn judge_block(&self, lba: u64, bytes: &[u8], after_crash: bool, seed: u64, when: &str) {
        let block = &mut self.blocks.borrow_mut()[lba as usize];
        let oldest = if after_crash { block.durable } else { block.acknowledged };
        let version = if bytes.iter().all(|&byte| byte == 0) {
            let zeroes =
                block.zeroes.iter().copied().filter(|version| (oldest..=block.newest).contains(version));
            zeroes.max().or((oldest == 0).then_some(0))
        } else {
            let version = u32::from_le_bytes(bytes[8..12].try_into().unwrap());
            let is_own = bytes == content(lba, version) && !block.zeroes.contains(&version);
            Some(version).filter(|version| is_own && (oldest..=block.newest).contains(version))
        };
        let Some(version) = version else {
            let found = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            let number = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
            panic!(
                "seed {seed}: {when}: block {lba} should hold version {oldest}..={} (zeros: {:?}), holds block {found} version {number}",
                block.newest, block.zeroes
            );
        };
        (block.durable, block.acknowledged, block.newest) = (version, version, version);
        block.zeroes.retain(|&zeroes| zeroes == version);
    }
}

/// A client of its own blocks, until the log fails.
pub async fn client(context: Context, log: Log, history: Rc<History>, number: u64, clients: u64, seed: u64) {
    let mut random = SplitMix64::new(seed * 977 + number);
    let span = history.blocks() / clients;
    // Some blocks are written more often than others.
    let hot = 1 + random.below(span);
    loop {
        let within = if random.chance(0.7) { hot } else { span };
        let first = random.below(within);
        let most = if random.chance(0.2) { 40 } else { 4 };
        let count = 1 + random.below((within - first).min(most));
        let lba = number * span + first;
        let result = match random.below(100) {
            0..10 => history.flush(&log).await,
            10..16 => history.discard(&log, lba, count).await,
            16..22 => history.write(&log, lba, count, true).await,
            22..24 => {
                context.sleep_ns(random.below(3_000_000)).await;
                Ok(())
            }
            _ => history.write(&log, lba, count, false).await,
        };
        match result {
            Ok(()) | Err(LogError::NoSpace { .. }) => {}
            Err(error) => panic!("seed {seed}: client {number}: {error}"),
        }
        if random.chance(0.05) {
            stripewise_drive::yield_now().await;
        }
    }
}
