//! Clients write with full journals while a job or a discard works through whole regions: all of
//! them make progress. A failure here is a deadlock, so each step gets 30 s of virtual time, far
//! more than it takes.
//!
//! Invariant I5 (`docs/internals/invariants.md`).

use std::cell::Cell;
use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_drive::{Buffer, Drive, ModelDrive, ModelSpec, SplitMix64};
use stripewise_layout::LayoutSpec;
use stripewise_pool::{JobKind, Pool, Volume, VolumeSpec};

const SIZE: u64 = 9 * MIB;
const CLIENTS: u64 = 32;
/// Time limit of each step.
const LIMIT_NS: u64 = 30_000_000_000;

/// A pool with clients writing to it.
struct Scene {
    life: Life,
    drives: Vec<Rc<dyn Drive>>,
    pool: Pool,
    volume: Volume,
    done: Rc<Cell<u64>>,
}

#[derive(Clone, Copy)]
struct Shape {
    drives: usize,
    columns: Option<usize>,
    interleave_bytes: u64,
    checksums: bool,
    thin: bool,
    /// The whole volume was written before.
    full: bool,
}

const SHAPE: Shape =
    Shape { drives: 4, columns: None, interleave_bytes: 16384, checksums: true, thin: false, full: true };

/// With and without checksums (with them records are kept for longer), with large and small
/// stripes.
const SHAPES: [Shape; 3] = [
    SHAPE,
    Shape { interleave_bytes: 4096, checksums: false, ..SHAPE },
    Shape { interleave_bytes: 65536, checksums: false, ..SHAPE },
];

impl Scene {
    /// Runs `steps` while clients write at random.
    fn play(shape: Shape, seed: u64, steps: impl AsyncFnOnce(&Scene)) {
        let life = Life::new();
        let spec = ModelSpec { latency_ns: 200_000, bytes_per_second: 200_000_000, queue_depth: 8 };
        let model = |image: Rc<stripewise_drive::MemoryDrive>| {
            let info = image.info().clone();
            ModelDrive::new(&life.context, &info.label, info.capacity_bytes, spec, image) as Rc<dyn Drive>
        };
        let drives: Vec<Rc<dyn Drive>> = memory_drives(shape.drives, 64).into_iter().map(model).collect();
        let (pool, volume) = life.run(async {
            let pool = life.create(&drives, &[]).await.expect("a pool");
            let mut spec = VolumeSpec {
                write_back: Some(true),
                checksums: Some(shape.checksums),
                thin: shape.thin,
                ..volume_spec("v", "raid5", Some(SIZE))
            };
            spec.layout.interleave_bytes = Some(shape.interleave_bytes);
            spec.layout.columns = shape.columns.or(spec.layout.columns);
            let volume = pool.create_volume(spec).await.expect("a volume");
            if shape.full {
                fill(&volume, 1, 0, SIZE).await;
                volume.flush().await.expect("flushed");
            }
            pool.start_jobs();
            (pool, volume)
        });
        let scene = Scene { life, drives, pool, volume, done: Rc::default() };
        let over = Rc::new(Cell::new(false));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (volume, over, done) = (scene.volume.clone(), over.clone(), scene.done.clone());
                let mut random = SplitMix64::new(seed * 1000 + client);
                scene.life.context.spawn(async move {
                    while !over.get() {
                        let most = if random.chance(0.3) { 64 } else { 4 };
                        let length = 4096 * (1 + random.below(most));
                        let at = random.below((SIZE - length) / 4096) * 4096;
                        let data = Buffer::from_bytes(&vec![client as u8; length as usize]);
                        volume.write(at, data, false).await.expect("written");
                        done.set(done.get() + 1);
                    }
                })
            })
            .collect();
        scene.life.run(async {
            steps(&scene).await;
            over.set(true);
            let last = async {
                for client in clients {
                    client.await;
                }
            };
            scene.within("the clients' last writes", last).await;
            scene.within("closing the pool", async { scene.pool.close().await.expect("closed") }).await;
        });
    }

    async fn pause(&self, milliseconds: u64) {
        self.life.context.sleep_ns(milliseconds * 1_000_000).await;
    }

    /// Runs a step within the time limit.
    async fn within<T>(&self, what: &str, step: impl Future<Output = T>) -> T {
        let context = &self.life.context;
        let before = self.done.get();
        let ended = context.time_limit_ns(LIMIT_NS, std::pin::pin!(step)).await;
        let written = self.done.get() - before;
        ended.unwrap_or_else(|_| panic!("{what} does not end; {written} writes ended in that time"))
    }

    async fn clients_go_on(&self) {
        let (until, began) = (self.done.get() + 2 * CLIENTS, self.life.context.now_ns());
        while self.done.get() < until {
            let waited = self.life.context.now_ns() - began;
            assert!(waited < LIMIT_NS, "clients are stuck: {} of {until} writes", self.done.get());
            self.pause(1).await;
        }
    }
}

#[test]
fn region_discards_progress_with_full_journals() {
    for (seed, shape) in (0..).zip(SHAPES) {
        Scene::play(shape, seed, async |scene| {
            for round in 0..20 {
                for region in 0..3 {
                    let discard = scene.volume.discard(region * 3 * MIB, 3 * MIB);
                    scene.within("a discard", discard).await.expect("discarded");
                    scene.pause(round % 4).await;
                }
                scene.clients_go_on().await;
            }
        });
    }
}

#[test]
fn rebuilds_progress_with_full_journals() {
    for (seed, shape) in (0..).zip(SHAPES) {
        Scene::play(shape, seed, async |scene| {
            let id = scene.pool.status().drives[3].id;
            for _ in 0..5 {
                scene.pause(40).await;
                scene.within("taking a drive offline", scene.pool.offline(id)).await.expect("spared");
                scene.pause(40).await;
                let back = scene.pool.online(id, Some(scene.drives[3].clone()));
                scene.within("taking it back", back).await.expect("back");
                scene.within("a rebuild", scene.pool.wait(JobKind::Rebuild)).await.expect("rebuilt");
                scene.clients_go_on().await;
            }
        });
    }
}

#[test]
fn evacuations_progress_with_full_journals() {
    for (seed, shape) in (0..).zip(SHAPES) {
        let shape = Shape { drives: 6, columns: Some(4), ..shape };
        Scene::play(shape, seed, async |scene| {
            for drive in &scene.pool.status().drives[..2] {
                scene.pause(40).await;
                let moving = async {
                    scene.pool.retire(drive.id).await.expect("there is room");
                    scene.pool.wait(JobKind::Rebuild).await.expect("emptied");
                };
                scene.within("emptying a drive", moving).await;
                scene.clients_go_on().await;
            }
            assert_eq!(scene.pool.status().drives.len(), 4);
        });
    }
}

#[test]
fn scrubs_progress_with_full_journals() {
    for (seed, shape) in (0..).zip(SHAPES) {
        Scene::play(shape, seed, async |scene| {
            for _ in 0..4 {
                scene.pause(20).await;
                let scrub = async {
                    scene.pool.scrub().await.expect("begun");
                    scene.pool.wait(JobKind::Scrub).await.expect("checked");
                };
                scene.within("a scrub", scrub).await;
                scene.clients_go_on().await;
            }
        });
    }
}

#[test]
fn row_discards_progress_with_full_journals() {
    for (seed, shape) in (0..).zip(SHAPES) {
        Scene::play(Shape { thin: true, ..shape }, seed, async |scene| {
            for round in 0..20 {
                let discard = scene.volume.discard(0, SIZE);
                scene.within("a discard", discard).await.expect("discarded");
                scene.pause(round % 4).await;
                scene.clients_go_on().await;
            }
        });
    }
}

#[test]
fn conversions_progress_with_full_journals() {
    for (seed, shape) in (0..).zip(SHAPES) {
        let shape = Shape { drives: 6, columns: Some(4), ..shape };
        Scene::play(shape, seed, async |scene| {
            for layout in ["raid6", "raid5"] {
                scene.pause(20).await;
                let converting = async {
                    let mut layout = LayoutSpec::parse(layout).expect("a layout");
                    layout.interleave_bytes = Some(shape.interleave_bytes);
                    scene.pool.convert_volume("v", layout).await.expect("there is room");
                    scene.pool.wait(JobKind::Convert).await.expect("converted");
                };
                scene.within("a conversion", converting).await;
                scene.clients_go_on().await;
            }
        });
    }
}

/// Regions in their first write: their records are released only when a flush has completed them.
#[test]
fn flushes_of_new_regions_progress_with_full_journals() {
    for (seed, shape) in (0..).zip(SHAPES) {
        Scene::play(Shape { full: false, ..shape }, seed, async |scene| {
            for round in 0..20 {
                scene.pause(1 + round % 5).await;
                scene.within("a flush", scene.volume.flush()).await.expect("flushed");
                let discard = scene.volume.discard(round % 3 * 3 * MIB, 3 * MIB);
                scene.within("a discard", discard).await.expect("discarded");
                scene.clients_go_on().await;
            }
        });
    }
}
