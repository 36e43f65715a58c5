//! Scenes between two lives, each on copies of the drives, so that the run itself goes on as if
//! nothing had happened: a pool that is used in two halves, a drive that is put back from a copy or
//! cut short, a second process that opens the pool, a reopening under open files. They need drives
//! and openings that a life does not have, and each begins with a pool that has been through lives,
//! cuts included.
//!
//! A scene writes some blocks of each volume, flushes, and later reads them; nothing else is
//! written. Where the pool is not whole, or not all of it is where the scene needs it, the scene
//! does not take place.
//!
//! Faults expected: the engine's own errors, which are judged here.

mod copied;
mod cut;
mod full_record;
mod halves;
mod losses;
mod openers;
mod reopened;
mod resized;
mod shown;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use stripewise_drive::{Context, Drive, MemoryDrive};
use stripewise_runtime::VirtualExecutor;

use crate::life::new_executor;
use crate::subject::{Refusal, Store, Subject, disk_label};
use crate::world::World;
use crate::world::content::{BLOCK_BYTES, Content, SECTOR_BYTES, identify, stamp};

/// A kind of scene.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scene {
    /// Both halves of a pool live on without each other, one of them through dozens of changes.
    Halves,
    /// A drive is put back to what it held while the pool was in use.
    Copied,
    /// A drive is cut short, and gets its length back with zeros.
    Cut,
    /// A drive is lost when a thin volume has filled the pool's record.
    FullRecord,
    /// More blocks are lost in a rebuild than the pool's record has room to name.
    Losses,
    /// A second process opens a pool that is in use.
    Openers,
    /// A pool is reopened while the file of a volume is open twice.
    Reopened,
    /// A drive has another length than before, or one of another length takes its place.
    Resized,
}

pub(super) const SECOND_NS: u64 = 1_000_000_000;

/// The number that blocks of scenes are stamped with: no volume of a run has it.
const NUMBER: u32 = 1 << 20;
/// Blocks of a volume that scenes write.
const BLOCKS: u64 = 16;

/// Plays the scene of the run's kind, if it has one.
pub(crate) fn play(world: &Rc<World>, life: usize, kept: &RefCell<Vec<Rc<VirtualExecutor>>>) {
    let Some(scene) = world.bias.scene else { return };
    let disks = world.disks.borrow();
    let image = |disk: usize| disks[disk].crash.image_after_cut(&disk_label(disk), 0);
    let images = (0..disks.len()).map(image).collect();
    drop(disks);
    let mut stage = Stage { world, kept, images, life };
    match scene {
        Scene::Halves => halves::play(&stage),
        Scene::Copied => copied::play(&mut stage),
        Scene::Cut => cut::play(&stage),
        Scene::FullRecord => full_record::play(&stage),
        Scene::Losses => losses::play(&stage),
        Scene::Openers => openers::play(&stage),
        Scene::Reopened => reopened::play(&stage),
        Scene::Resized => resized::play(&mut stage),
    }
}

/// Copies of a run's drives.
struct Stage<'a> {
    world: &'a Rc<World>,
    kept: &'a RefCell<Vec<Rc<VirtualExecutor>>>,
    images: Vec<Rc<MemoryDrive>>,
    life: usize,
}

impl Stage<'_> {
    /// Does something with a clock and tasks of its own. What is not closed then was killed.
    fn run<T>(&self, work: impl AsyncFnOnce(Context) -> T) -> T {
        let executor = new_executor(self.world, self.kept);
        executor.block_on(work(executor.context()))
    }

    fn drives(&self, which: impl Fn(usize) -> bool) -> Vec<Rc<dyn Drive>> {
        let chosen = self.images.iter().enumerate().filter(|(disk, _)| which(*disk));
        chosen.map(|(_, image)| image.clone() as Rc<dyn Drive>).collect()
    }

    async fn open(&self, context: &Context, drives: Vec<Rc<dyn Drive>>) -> Result<Subject, Refusal> {
        Subject::open(context, self.world.settings(), drives, false).await
    }

    /// A disk that holds data of a volume, as the pool of all drives has it; `None` where it is not
    /// whole.
    fn disk_in_use(&self) -> Option<usize> {
        self.run(async |context| {
            let subject = self.open(&context, self.drives(|_| true)).await.ok()?;
            let facts = subject.facts();
            let is_whole = subject.is_online() && !facts.is_empty();
            let in_use: BTreeSet<usize> = facts.iter().flat_map(|facts| facts.disks()).collect();
            subject.close().await.ok()?;
            let in_use: Vec<usize> = in_use.into_iter().collect();
            if is_whole { self.world.pick(&in_use) } else { None }
        })
    }

    fn note(&self, what: &str) {
        self.world.note(0, what);
    }

    fn broken(&self, promise: &str, detail: &str) {
        self.world.broken(promise, format!("after life {}, on copies of the drives: {detail}", self.life));
    }
}

/// Blocks of a volume that scenes write: their offsets.
fn blocks(store: &Store) -> impl Iterator<Item = u64> {
    let blocks = store.capacity_bytes() / BLOCK_BYTES;
    (0..BLOCKS.min(blocks)).map(move |index| blocks * index / BLOCKS * BLOCK_BYTES)
}

fn contents(offset_bytes: u64, version: u32) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_BYTES as usize];
    stamp(&mut bytes, NUMBER, (offset_bytes / SECTOR_BYTES) as u32, version);
    bytes
}

/// Writes one version of its blocks to every volume, and flushes.
async fn write_all(subject: &Subject, version: u32) -> Result<(), Refusal> {
    write_every(1, subject, version).await
}

/// As [`write_all`], to one of each `step` blocks.
async fn write_every(step: usize, subject: &Subject, version: u32) -> Result<(), Refusal> {
    for facts in subject.facts() {
        let store = subject.volume(&facts.name)?;
        for offset in blocks(&store).step_by(step) {
            store.write(offset, &contents(offset, version), false).await?;
        }
        store.flush().await?;
    }
    Ok(())
}

/// An error where a volume does not hold these versions of its blocks, taking turns.
async fn hold(subject: &Subject, versions: &[u32]) -> Result<(), String> {
    for facts in subject.facts() {
        let store = subject.volume(&facts.name).map_err(|why| format!("{}: {why}", facts.name))?;
        for (offset, version) in blocks(&store).zip(versions.iter().copied().cycle()) {
            holds(&store, offset, version).await.map_err(|why| format!("{}: {why}", facts.name))?;
        }
    }
    Ok(())
}

async fn holds(store: &Store, offset_bytes: u64, version: u32) -> Result<(), String> {
    let read = store.read(offset_bytes, BLOCK_BYTES as usize).await;
    let bytes = read.map_err(|why| format!("reading at {offset_bytes}: {why}"))?;
    for (sector, bytes) in (offset_bytes / SECTOR_BYTES..).zip(bytes.chunks_exact(SECTOR_BYTES as usize)) {
        let found = identify(bytes);
        if found != (Content::Data { volume: NUMBER, sector: sector as u32, version }) {
            return Err(format!("sector {sector} holds {found:?}, not version {version}"));
        }
    }
    Ok(())
}
