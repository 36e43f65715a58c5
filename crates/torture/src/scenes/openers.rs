//! A second process opens a pool that is in use: it is refused, or, by force, the first one
//! acknowledges nothing from then on.

use std::cell::Cell;
use std::rc::Rc;

use stripewise_drive::{Context, Drive, DriveKind};

use super::shown::Shown;
use super::{SECOND_NS, Stage, blocks, contents, holds};
use crate::subject::{Opener, Store, Subject};

/// Writes of the first process at most.
const MOST_WRITES: u32 = 4000;

pub(super) fn play(stage: &Stage<'_>) {
    let Some(_) = stage.disk_in_use() else { return };
    let draw = |limit| stage.world.below(limit);
    let is_other = draw(2) == 0;
    let takes_over = draw(2) == 0;
    // Drives that this machine has locked no other process of it can have.
    let kind = if is_other && draw(2) == 0 { DriveKind::BlockDevice } else { DriveKind::Network };
    let pause_ns = draw(4 * SECOND_NS);
    stage.note(&format!("opened twice: other host {is_other}, by force {takes_over}, {kind:?}"));
    stage.run(async |context| {
        let reached = || -> Vec<Rc<dyn Drive>> {
            stage.images.iter().map(|image| Shown::of_kind(image, kind) as Rc<dyn Drive>).collect()
        };
        let open = async |host: u64, by_force: bool| {
            let opener = Opener { host, by_force };
            Subject::open_as(&context, stage.world.settings(), reached(), opener).await
        };
        let Ok(first) = open(1, false).await else { return };
        let Some(store) = first.facts().first().and_then(|facts| first.volume(&facts.name).ok()) else {
            return;
        };
        stage.world.cover(|coverage| coverage.scenes += 1);
        let last = Rc::new(Cell::new((0, 0)));
        let writing = {
            let (context, last, store) = (context.clone(), last.clone(), store.clone());
            let again = context.clone();
            context.spawn(async move {
                write_on(&store, &last, &again).await;
            })
        };
        context.sleep_ns(pause_ns).await;
        let second = open(if is_other { 2 } else { 1 }, takes_over).await;
        let opened_ns = context.now_ns();
        match second {
            Ok(_) if !takes_over => {
                stage.broken("no-stale-drive", &format!("a pool in use is opened by host {is_other}"));
            }
            Ok(second) => {
                writing.await;
                let (version, at_ns) = last.get();
                if at_ns > opened_ns {
                    let detail = format!("version {version} is acknowledged by a session taken over");
                    stage.broken("no-stale-drive", &detail);
                } else if let Some(facts) = second.facts().first()
                    && let Ok(store) = second.volume(&facts.name)
                {
                    acknowledged_is_there(stage, &store, version).await;
                }
            }
            Err(why) if takes_over => {
                stage.broken("nothing-refused", &format!("taking over is refused: {why}"));
            }
            Err(_) => {}
        }
    });
}

/// The place of a version.
fn place(store: &Store, version: u32) -> u64 {
    blocks(store).nth(version as usize % 16).unwrap_or(0)
}

/// Writes and flushes until it is refused. `last`: the last version that was acknowledged, and
/// when.
async fn write_on(store: &Store, last: &Cell<(u32, u64)>, context: &Context) {
    for version in 1..MOST_WRITES {
        let offset = place(store, version);
        let written = store.write(offset, &contents(offset, version), false).await;
        if written.is_err() || store.flush().await.is_err() {
            return;
        }
        last.set((version, context.now_ns()));
        context.sleep_ns(20_000_000).await;
    }
}

async fn acknowledged_is_there(stage: &Stage<'_>, store: &Store, last: u32) {
    for version in last.saturating_sub(8).max(1)..=last {
        if let Err(why) = holds(store, place(store, version), version).await {
            stage.broken("flushed-data-survives", &format!("after a take-over: {why}"));
        }
    }
}
