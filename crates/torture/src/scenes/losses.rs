//! A drive has more bad blocks than the pool's record has room to name, and another one is lost and
//! rebuilt. Some of the lost blocks are written again and flushed, and the pool is opened again, in
//! order or after a kill. On drives of its own, as those of a run hold less than a rebuild loses
//! here.

use std::collections::BTreeSet;
use std::rc::Rc;

use stripewise_drive::{Context, Drive, FaultyDrive, MemoryDrive};
use stripewise_layout::{LayoutSpec, Level};

use super::{Stage, contents, holds};
use crate::subject::{NewVolume, Settings, Store, Subject, disk_label};
use crate::world::content::BLOCK_BYTES;

const MIB: u64 = 1 << 20;
/// Written at a time when the volume is filled.
const STRETCH_BLOCKS: u64 = 64;

/// Changes to a volume full of version 1.
struct Outcome {
    /// Blocks that could not be read.
    lost: BTreeSet<u64>,
    /// Those of them that were written again, as version 2, and flushed.
    written: BTreeSet<u64>,
}

pub(super) fn play(stage: &Stage<'_>) {
    let draw = |limit| stage.world.below(limit);
    let width = 4 + draw(3) as usize;
    let images: Vec<Rc<MemoryDrive>> =
        (0..=width).map(|disk| MemoryDrive::with_block(&disk_label(disk), 24 * MIB, 4096)).collect();
    let checksums = draw(2) == 0;
    let mut settings = Settings { slab_bytes: MIB, checksums, ..stage.world.settings() };
    settings.max_read_errors = u32::MAX;
    settings.tuning.lost_record_bytes = 16 + draw(100);
    let layout = LayoutSpec { columns: Some(width), ..LayoutSpec::new(Level::Raid5) };
    let size_bytes = (2 + draw(3)) * (width as u64 - 1) * MIB;
    let write_back = draw(2) == 0;
    let new = NewVolume { name: "v0".to_owned(), layout, size_bytes, write_back, thin: false, slices: 1 };
    let all: Vec<Rc<dyn Drive>> = images.iter().map(|image| image.clone() as Rc<dyn Drive>).collect();
    let is_made = stage.run(async |context| {
        let drives = all[..width].to_vec();
        let subject = Subject::create(&context, settings, drives, vec![], vec![], vec![]).await.ok()?;
        let store = subject.create_volume(settings, &new).await.ok()?;
        fill(&store).await?;
        subject.close().await.ok()
    });
    if is_made.is_none() {
        return;
    }
    let bad = draw(width as u64) as usize;
    let gone = (bad + 1 + draw(width as u64 - 1) as usize) % width;
    let outcome = stage.run(async |context| {
        let mut drives = all[..width].to_vec();
        drives[bad] = with_bad_blocks(stage, &context, &images[bad]);
        drives.remove(gone);
        let settings = Settings { seed: settings.seed ^ 1, ..settings };
        let subject = Subject::open(&context, settings, drives, false).await.ok()?;
        lose_and_write(stage, &subject, gone, all[width].clone()).await
    });
    let Some(outcome) = outcome else { return };
    stage.note(&format!("{} blocks lost, {} of them written", outcome.lost.len(), outcome.written.len()));
    stage.world.cover(|coverage| coverage.scenes += u64::from(!outcome.lost.is_empty()));
    let drives: Vec<Rc<dyn Drive>> =
        all.iter().enumerate().filter(|(disk, _)| *disk != gone).map(|(_, drive)| drive.clone()).collect();
    stage.run(async |context| {
        let settings = Settings { seed: settings.seed ^ 2, ..settings };
        match Subject::open(&context, settings, drives, false).await {
            Ok(subject) => match subject.volume("v0") {
                Ok(store) => judge(stage, &store, &outcome, "opened again").await,
                Err(why) => stage.broken("nothing-refused", &format!("with lost blocks: {why}")),
            },
            Err(why) => stage.broken("nothing-refused", &format!("with lost blocks: {why}")),
        }
    });
}

/// Version 1 everywhere.
async fn fill(store: &Store) -> Option<()> {
    for first in (0..store.capacity_bytes() / BLOCK_BYTES).step_by(STRETCH_BLOCKS as usize) {
        let end = (first + STRETCH_BLOCKS).min(store.capacity_bytes() / BLOCK_BYTES);
        let bytes: Vec<u8> = (first..end).flat_map(|block| contents(block * BLOCK_BYTES, 1)).collect();
        store.write(first * BLOCK_BYTES, &bytes, false).await.ok()?;
    }
    store.flush().await.ok()
}

/// The drive, of which every other block cannot be read over a stretch.
fn with_bad_blocks(stage: &Stage<'_>, context: &Context, image: &Rc<MemoryDrive>) -> Rc<dyn Drive> {
    let faults = FaultyDrive::new(context, image.clone(), 1);
    let first = 2 * MIB + stage.world.below(512) * BLOCK_BYTES;
    for block in 0..32 + stage.world.below(300) {
        let start = first + 2 * block * BLOCK_BYTES;
        faults.make_unreadable(start..start + BLOCK_BYTES);
    }
    faults
}

/// Rebuilds the drive that is gone onto a new one, and writes some of what is lost.
async fn lose_and_write(
    stage: &Stage<'_>,
    subject: &Subject,
    gone: usize,
    new: Rc<dyn Drive>,
) -> Option<Outcome> {
    let place = subject.places().into_iter().find(|place| place.disk == gone)?;
    subject.replace(place.id, new).await.ok()?;
    let rebuilt = subject.wait_rebuilt().await;
    stage.note(&format!("disk{gone} is rebuilt beside bad blocks: {rebuilt:?}"));
    let store = subject.volume("v0").ok()?;
    let mut outcome = Outcome { lost: BTreeSet::new(), written: BTreeSet::new() };
    for offset in offsets(&store) {
        if store.read(offset, BLOCK_BYTES as usize).await.is_err() {
            outcome.lost.insert(offset);
        }
    }
    // The pool counts blocks of the rebuilt column. Beside each lies a bad block, which no drive
    // has either; one of both may be parity.
    let (reported, found) = (subject.lost_blocks(), outcome.lost.len() as u64);
    if !(reported..=2 * reported).contains(&found) {
        stage.broken("true-counts", &format!("{reported} lost blocks are reported, {found} cannot be read"));
    }
    judge(stage, &store, &outcome, "after the rebuild").await;
    let step = 1 + stage.world.below(4) as usize;
    for offset in outcome.lost.iter().copied().step_by(step) {
        // Refused where the record has no room: then nothing is promised of it.
        if store.write(offset, &contents(offset, 2), false).await.is_ok() {
            outcome.written.insert(offset);
        }
    }
    if let Err(why) = store.flush().await {
        stage.broken("nothing-refused", &format!("flushing what was written to lost blocks: {why}"));
        return None;
    }
    judge(stage, &store, &outcome, "after a flush").await;
    if stage.world.chance(0.5) {
        subject.close().await.ok()?;
    }
    Some(outcome)
}

fn offsets(store: &Store) -> impl Iterator<Item = u64> {
    (0..store.capacity_bytes() / BLOCK_BYTES).map(|block| block * BLOCK_BYTES)
}

/// Data written to lost blocks must be there; a lost block holds what it had, or is an error; all
/// others are as they were.
async fn judge(stage: &Stage<'_>, store: &Store, outcome: &Outcome, when: &str) {
    for offset in offsets(store) {
        let is_written = outcome.written.contains(&offset);
        let is_lost = outcome.lost.contains(&offset) && !is_written;
        if is_lost && store.read(offset, BLOCK_BYTES as usize).await.is_err() {
            continue;
        }
        if let Err(why) = holds(store, offset, if is_written { 2 } else { 1 }).await {
            let detail = format!("{} lost blocks, {when}: {why}", outcome.lost.len());
            return stage.broken(if is_lost { "no-wrong-bytes" } else { "flushed-data-survives" }, &detail);
        }
    }
}
