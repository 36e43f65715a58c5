//! A thin volume fills the pool's record with rows, each somewhere else, until a write is refused.
//! Then a drive is lost that the volume can do without: that still has room in the record, and the
//! pool opens for writing after it. On drives of its own, as those of a run hold a few rows only.

use std::rc::Rc;

use stripewise_drive::{Context, Drive, MemoryDrive, SplitMix64};
use stripewise_layout::{LayoutSpec, Level};

use super::{Stage, contents};
use crate::subject::{NewVolume, Settings, Store, Subject, disk_label};

const MIB: u64 = 1 << 20;
const ROWS: u64 = 360;

pub(super) fn play(stage: &Stage<'_>) {
    let draw = |limit| stage.world.below(limit);
    let width = 10 + draw(4);
    let images: Vec<Rc<MemoryDrive>> = (0..width + 2)
        .map(|disk| MemoryDrive::with_block(&disk_label(disk as usize), (ROWS + 16) * MIB, 4096))
        .collect();
    let drives =
        || -> Vec<Rc<dyn Drive>> { images.iter().map(|image| image.clone() as Rc<dyn Drive>).collect() };
    let mut settings = Settings { slab_bytes: MIB, checksums: false, ..stage.world.settings() };
    settings.tuning.record_room_bytes = (2 + draw(2)) * 4096;
    settings.tuning.record_reserve_bytes = 1 << 10;
    settings.tuning.thin_rows = 1;
    let lost = draw(width + 2) as usize;
    let mut random = SplitMix64::new(stage.world.next_seed());
    let row = stage.run(async |context| {
        let subject = made(&context, settings, drives()).await?;
        let layout = LayoutSpec { columns: Some(width as usize), ..LayoutSpec::new(Level::Raid5) };
        let size_bytes = ROWS * (width - 1) * MIB;
        let new =
            NewVolume { name: "v0".to_owned(), layout, size_bytes, write_back: false, thin: true, slices: 1 };
        let store = subject.create_volume(settings, &new).await.ok()?;
        let row = fill(&store, (width - 1) * MIB, &mut random).await?;
        stage.world.cover(|coverage| coverage.scenes += 1);
        let place = subject.places().into_iter().find(|place| place.disk == lost)?;
        let excluded = subject.fail_drive(place.id).await;
        stage.note(&format!("the record is full; fail disk{lost}: {excluded:?}"));
        // The status has a plan of the repair, which is made for all rows in one turn.
        stage.note(&format!("online: {}", subject.is_online()));
        is_written(stage, &store, row, "without the drive").await.then_some(row)
    });
    let Some(row) = row else { return };
    stage.run(async |context| {
        match Subject::open(&context, Settings { seed: settings.seed ^ 1, ..settings }, drives(), false).await
        {
            Ok(subject) => match subject.volume("v0") {
                Ok(store) => {
                    is_written(stage, &store, row, "opened again").await;
                }
                Err(why) => stage.broken("nothing-refused", &format!("with a full record: {why}")),
            },
            Err(why) => {
                let detail = format!("after a loss with a full record it cannot be opened: {why}");
                stage.broken("nothing-refused", &detail);
            }
        }
    });
}

async fn made(context: &Context, settings: Settings, drives: Vec<Rc<dyn Drive>>) -> Option<Subject> {
    Subject::create(context, settings, drives, vec![], vec![], vec![]).await.ok()
}

/// Writes to rows in a random order until that is refused for lack of room in the record. Gives the
/// place of the first.
async fn fill(store: &Store, row_bytes: u64, random: &mut SplitMix64) -> Option<u64> {
    let mut rows: Vec<u64> = (0..ROWS).collect();
    (1..rows.len()).for_each(|at| rows.swap(at, random.below(at as u64 + 1) as usize));
    for row in &rows {
        let place = row * row_bytes;
        if let Err(why) = store.write(place, &contents(place, 1), false).await {
            let is_full = why.is_full && why.to_string().contains("metadata") && row != &rows[0];
            return is_full.then(|| rows[0] * row_bytes);
        }
    }
    None
}

async fn is_written(stage: &Stage<'_>, store: &Store, place: u64, when: &str) -> bool {
    let written = store.write(place, &contents(place, 2), false).await;
    let refused = match written {
        Ok(()) => store.flush().await.err(),
        Err(why) => Some(why),
    };
    if let Some(why) = &refused {
        stage.broken("nothing-refused", &format!("with a full record, {when}: {why}"));
    }
    refused.is_none()
}
