//! A drive that has another length than before: its file was extended or cut, between two openings
//! or while the drive was offline, or a blank file of another size takes its place in use. What was
//! flushed is read afterwards, also without another drive once the pool counts itself whole.

use std::rc::Rc;

use stripewise_drive::{Drive, MemoryDrive};

use super::{SECOND_NS, Stage, hold, write_all, write_every};
use crate::subject::{Subject, disk_label};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
/// A shorter drive belongs to no pool.
const SHORTEST_BYTES: u64 = 4 * MIB;

/// The way in which the length changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    BetweenOpenings,
    WhileOffline,
    ByBlankFile,
}

pub(super) fn play(stage: &mut Stage<'_>) {
    let Some(disk) = stage.disk_in_use() else { return };
    let draw = |limit| stage.world.below(limit);
    let before = stage.images[disk].info().capacity_bytes;
    let after = match draw(4) {
        0 => before + BLOCK * (1 + draw(8192)),
        // Far enough for slabs to begin elsewhere on a drive of that length.
        1 => before + 128 * MIB + BLOCK * draw(8192),
        _ => SHORTEST_BYTES + BLOCK * draw((before - SHORTEST_BYTES) / BLOCK),
    };
    let way = [Way::BetweenOpenings, Way::WhileOffline, Way::ByBlankFile][draw(3) as usize];
    let is_rubbish = draw(2) == 0;
    stage.note(&format!("disk{disk} of {before} bytes becomes {after} bytes: {way:?}"));
    let used = match way {
        Way::BetweenOpenings => between_openings(stage, disk, after, is_rubbish),
        Way::WhileOffline => while_offline(stage, disk, after, is_rubbish),
        Way::ByBlankFile => by_blank_file(stage, disk, after),
    };
    if used.is_none() {
        return;
    }
    stage.world.cover(|coverage| coverage.scenes += 1);
    if way != Way::ByBlankFile && stage.world.chance(0.5) {
        stage.images[disk] = of_length(&stage.images[disk], disk, before, false);
    }
    let case = format!("disk{disk} was resized from {before} to {after} bytes, {way:?}");
    let is_whole = stage.run(async |context| {
        let subject = opened(stage, &case, stage.open(&context, stage.drives(|_| true)).await)?;
        subject.start_jobs();
        let rebuilt = subject.wait_rebuilt().await;
        holds_all(stage, &format!("{case}, rebuilt {rebuilt:?}"), &subject).await?;
        let is_whole = subject.is_online();
        let in_use: Vec<usize> = subject.facts().iter().flat_map(|facts| facts.disks()).collect();
        subject.close().await.ok()?;
        is_whole.then_some(in_use)
    });
    let Some(missing) = is_whole.and_then(|in_use| stage.world.pick(&in_use)) else { return };
    stage.run(async |context| {
        let case = format!("{case}; without disk{missing}");
        let drives = stage.drives(|other| other != missing);
        let subject = opened(stage, &case, stage.open(&context, drives).await)?;
        holds_all(stage, &case, &subject).await
    });
}

/// The beginning of a drive, with this length. `is_rubbish`: what is new is not zeros.
fn of_length(image: &MemoryDrive, disk: usize, capacity_bytes: u64, is_rubbish: bool) -> Rc<MemoryDrive> {
    let info = image.info();
    let new = MemoryDrive::with_block(&disk_label(disk), capacity_bytes, info.logical_block_bytes);
    let mut bytes = vec![0; info.capacity_bytes.min(capacity_bytes) as usize];
    image.peek(0, &mut bytes);
    new.poke(0, &bytes);
    if is_rubbish && capacity_bytes > info.capacity_bytes {
        let rubbish = vec![0xe5; (capacity_bytes - info.capacity_bytes).min(4 * MIB) as usize];
        new.poke(info.capacity_bytes, &rubbish);
        new.poke(capacity_bytes - rubbish.len() as u64, &rubbish);
    }
    new
}

fn opened<E: std::fmt::Display>(
    stage: &Stage<'_>,
    case: &str,
    opened: Result<Subject, E>,
) -> Option<Subject> {
    opened
        .map_err(|why| stage.broken("nothing-refused", &format!("{case}: the pool cannot be opened: {why}")))
        .ok()
}

async fn holds_all(stage: &Stage<'_>, case: &str, subject: &Subject) -> Option<()> {
    hold(subject, &[2, 1])
        .await
        .map_err(|why| {
            stage.broken("flushed-data-survives", &format!("{case}: {why}; {}", subject.in_words()));
        })
        .ok()
}

/// Writes the second version, which every volume can do without the drive.
async fn write_on(stage: &Stage<'_>, case: &str, subject: &Subject) -> Option<()> {
    let written = write_every(2, subject, 2).await;
    written.map_err(|why| stage.broken("nothing-refused", &format!("{case}: writing: {why}"))).ok()
}

/// Ends in order, or by a kill some seconds after the last flush.
async fn end(stage: &Stage<'_>, context: &stripewise_drive::Context, subject: &Subject) -> Option<()> {
    if stage.world.chance(0.5) {
        return subject.close().await.ok();
    }
    context.sleep_ns(6 * SECOND_NS).await;
    Some(())
}

fn between_openings(stage: &mut Stage<'_>, disk: usize, after: u64, is_rubbish: bool) -> Option<()> {
    stage.run(async |context| {
        let subject = stage.open(&context, stage.drives(|_| true)).await.ok()?;
        write_all(&subject, 1).await.ok()?;
        end(stage, &context, &subject).await
    })?;
    stage.images[disk] = of_length(&stage.images[disk], disk, after, is_rubbish);
    stage.run(async |context| {
        let case = format!("disk{disk} has {after} bytes now");
        let subject = opened(stage, &case, stage.open(&context, stage.drives(|_| true)).await)?;
        write_on(stage, &case, &subject).await?;
        holds_all(stage, &case, &subject).await?;
        end(stage, &context, &subject).await
    })
}

fn while_offline(stage: &mut Stage<'_>, disk: usize, after: u64, is_rubbish: bool) -> Option<()> {
    let resized = stage.run(async |context| {
        let subject = stage.open(&context, stage.drives(|_| true)).await.ok()?;
        write_all(&subject, 1).await.ok()?;
        let place = subject.places().into_iter().find(|place| place.disk == disk)?;
        subject.offline(place.id).await.ok()?;
        let resized = of_length(&stage.images[disk], disk, after, is_rubbish);
        let back = subject.online(place.id, resized.clone()).await;
        let case = format!("disk{disk} came back with {after} bytes: {back:?}");
        stage.note(&case);
        write_on(stage, &case, &subject).await?;
        subject.start_jobs();
        // Refused where the drive is still out.
        let _ = subject.wait_rebuilt().await;
        holds_all(stage, &case, &subject).await?;
        end(stage, &context, &subject).await?;
        Some(resized)
    })?;
    stage.images[disk] = resized;
    Some(())
}

fn by_blank_file(stage: &mut Stage<'_>, disk: usize, after: u64) -> Option<()> {
    let number = stage.images.len();
    let block_bytes = stage.images[disk].info().logical_block_bytes;
    let blank = MemoryDrive::with_block(&disk_label(number), after, block_bytes);
    stage.run(async |context| {
        let subject = stage.open(&context, stage.drives(|_| true)).await.ok()?;
        write_all(&subject, 1).await.ok()?;
        let place = subject.places().into_iter().find(|place| place.disk == disk)?;
        let replaced = subject.replace(place.id, blank.clone()).await;
        let case = format!("a blank file of {after} bytes in the place of disk{disk}: {replaced:?}");
        stage.note(&case);
        write_on(stage, &case, &subject).await?;
        if stage.world.chance(0.5) {
            subject.start_jobs();
            let _ = subject.wait_rebuilt().await;
        }
        holds_all(stage, &case, &subject).await?;
        end(stage, &context, &subject).await
    })?;
    stage.images.push(blank);
    Some(())
}
