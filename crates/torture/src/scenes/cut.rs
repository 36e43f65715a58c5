//! A drive is cut short while the pool is in use, or between two lives, and has its length again
//! later, with zeros where it was cut: nothing that it holds counts.

use std::rc::Rc;

use stripewise_drive::{Drive, MemoryDrive};

use super::shown::Shown;
use super::{Stage, hold, write_all, write_every};
use crate::subject::{Refusal, Subject};

const MIB: u64 = 1 << 20;

pub(super) fn play(stage: &Stage<'_>) {
    let Some(disk) = stage.disk_in_use() else { return };
    let capacity = stage.images[disk].info().capacity_bytes;
    // Behind the pool's record; shorter than 8 MiB it is no drive of a pool any more.
    let left = (4 * MIB + stage.world.below(2048) * 4096).min(capacity - 4096);
    let is_in_use = stage.world.chance(0.5);
    let is_well = stage.run(async |context| {
        let shown = Shown::of_length(&stage.images[disk], capacity);
        let subject = stage.open(&context, with(stage, disk, shown.clone())).await.ok()?;
        write_all(&subject, 1).await.ok()?;
        if is_in_use {
            lose_the_rest(&stage.images[disk], left);
            shown.is_cut.set(true);
            return went_on(stage, disk, &subject).await;
        }
        subject.close().await.ok()
    });
    if is_well.is_none() {
        return;
    }
    stage.note(&format!("disk{disk} is cut to {left} bytes, in use {is_in_use}"));
    stage.world.cover(|coverage| coverage.scenes += 1);
    if !is_in_use {
        lose_the_rest(&stage.images[disk], left);
        let went_on = stage.run(async |context| {
            let shown = Shown::of_length(&stage.images[disk], left);
            let subject = is_opened(stage, disk, stage.open(&context, with(stage, disk, shown)).await)?;
            went_on(stage, disk, &subject).await
        });
        if went_on.is_none() {
            return;
        }
    }
    stage.run(async |context| {
        let opened = stage.open(&context, stage.drives(|_| true)).await;
        let Some(subject) = is_opened(stage, disk, opened) else { return };
        let rebuilt = {
            subject.start_jobs();
            subject.wait_rebuilt().await
        };
        if let Err(why) = hold(&subject, &[2, 1]).await {
            let detail = format!("disk{disk} was cut to {left} bytes, rebuilt {rebuilt:?}: {why}");
            stage.broken("no-wrong-bytes", &format!("{detail}; {}", subject.in_words()));
        }
    });
}

fn is_opened(stage: &Stage<'_>, disk: usize, opened: Result<Subject, Refusal>) -> Option<Subject> {
    opened
        .map_err(|why| {
            let detail = format!("disk{disk} was cut, and the pool cannot be opened: {why}");
            stage.broken("nothing-refused", &detail);
        })
        .ok()
}

fn lose_the_rest(image: &MemoryDrive, left: u64) {
    image.poke(left, &vec![0; (image.info().capacity_bytes - left) as usize]);
}

/// All drives, this one as it is shown.
fn with(stage: &Stage<'_>, disk: usize, shown: Rc<Shown>) -> Vec<Rc<dyn Drive>> {
    let mut drives = stage.drives(|_| true);
    drives[disk] = shown;
    drives
}

/// A pool that can do without the drive goes on, and is closed; `None`: it does not, as is noted.
async fn went_on(stage: &Stage<'_>, disk: usize, subject: &Subject) -> Option<()> {
    let written = write_every(2, subject, 2).await;
    let refused = match written {
        Ok(()) => hold(subject, &[2, 1]).await.err(),
        Err(why) => Some(why.to_string()),
    };
    if let Some(why) = refused {
        stage.broken("nothing-refused", &format!("without disk{disk}, which was cut: {why}"));
        return None;
    }
    subject.close().await.ok()
}
