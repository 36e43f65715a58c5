//! Both halves of a pool live on without each other. However many changes of who takes part one of
//! them has been through, they are not put together again.

use std::rc::Rc;

use stripewise_drive::Drive;

use super::{Stage, write_all};
use crate::subject::Subject;

/// Changes of who takes part, in half of the scenes: about as many as a pool remembers, two
/// branches for each.
const MANY: u64 = 70;

pub(super) fn play(stage: &Stage<'_>) {
    let Some(alone) = stage.disk_in_use() else { return };
    let flaps = if stage.world.chance(0.5) { MANY + stage.world.below(20) } else { stage.world.below(4) };
    let alone_lived = stage.run(async |context| {
        let opened = stage.open(&context, stage.drives(|disk| disk == alone)).await;
        lives_on(opened.ok(), 1, None).await
    });
    let others_lived = stage.run(async |context| {
        let opened = stage.open(&context, stage.drives(|disk| disk != alone)).await;
        let other = stage.images.iter().enumerate().rev().find(|(disk, _)| *disk != alone);
        let flapping = other.map(|(disk, image)| (disk, image.clone() as Rc<dyn Drive>, flaps));
        lives_on(opened.ok(), 2, flapping).await
    });
    if !alone_lived || !others_lived {
        return;
    }
    stage.note(&format!("disk{alone} and the others lived on, the others with {flaps} changes"));
    stage.world.cover(|coverage| coverage.scenes += 1);
    stage.run(async |context| {
        if let Ok(subject) = stage.open(&context, stage.drives(|_| true)).await {
            let detail = format!("two halves are put together after {flaps} changes: {}", subject.in_words());
            stage.broken("no-stale-drive", &detail);
        }
    });
}

/// Uses a half: whether that was possible. `flapping`: a disk that goes and comes back.
async fn lives_on(
    half: Option<Subject>,
    version: u32,
    flapping: Option<(usize, Rc<dyn Drive>, u64)>,
) -> bool {
    let Some(half) = half else { return false };
    let is_there = half.facts().iter().all(|facts| facts.is_readable) && !half.facts().is_empty();
    if !is_there || write_all(&half, version).await.is_err() {
        return false;
    }
    if let Some((disk, drive, flaps)) = flapping
        && let Some(place) = half.places().into_iter().find(|place| place.disk == disk)
    {
        for _ in 0..flaps {
            if half.offline(place.id).await.is_err() || half.online(place.id, drive.clone()).await.is_err() {
                break;
            }
        }
    }
    half.close().await.is_ok()
}
