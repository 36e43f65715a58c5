//! A drive is put back to what it held while the pool was in use: it must not be believed.

use super::{SECOND_NS, Stage, hold, write_all};
use crate::subject::disk_label;

pub(super) fn play(stage: &mut Stage<'_>) {
    let Some(disk) = stage.disk_in_use() else { return };
    let is_closed = stage.world.chance(0.5);
    let copy = stage.run(async |context| {
        let subject = stage.open(&context, stage.drives(|_| true)).await.ok()?;
        write_all(&subject, 1).await.ok()?;
        context.sleep_ns(stage.world.below(60 * SECOND_NS)).await;
        let copy = stage.images[disk].duplicate(&disk_label(disk));
        write_all(&subject, 2).await.ok()?;
        match is_closed {
            true => subject.close().await.ok()?,
            // Writes of the last seconds before a kill have no mark yet.
            false => context.sleep_ns(6 * SECOND_NS).await,
        }
        Some(copy)
    });
    let Some(copy) = copy else { return };
    stage.note(&format!("disk{disk} is put back to a copy, closed {is_closed}"));
    stage.world.cover(|coverage| coverage.scenes += 1);
    stage.images[disk] = copy;
    stage.run(async |context| match stage.open(&context, stage.drives(|_| true)).await {
        Ok(subject) => {
            if let Err(why) = hold(&subject, &[2]).await {
                let detail = format!("disk{disk} is a copy made in use: {why}; {}", subject.in_words());
                stage.broken("flushed-data-survives", &detail);
            }
        }
        Err(why) => {
            stage.broken("nothing-refused", &format!("with a copy as disk{disk} it cannot be opened: {why}"));
        }
    });
}
