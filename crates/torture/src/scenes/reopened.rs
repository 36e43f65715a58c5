//! A pool loses all its drives and is reopened, while programs have the file of a volume open
//! twice. Where writes that no `fsync` covered may be lost, each descriptor reports that once, at
//! its next `fsync`; what was covered is read. Several times in a row, also after a closing in
//! order, which loses nothing. After each reopening programs write parts of one sector at the same
//! time, and each part is read.

use std::rc::Rc;

use futures_util::future::join_all;
use stripewise_drive::{Context, CrashDrive, Drive};

use super::{Stage, blocks, contents, holds};
use crate::subject::{File, Mount, Store, Subject, disk_label};
use crate::world::content::{BLOCK_BYTES, SECTOR_BYTES};

/// A pool in use, of drives whose power can be cut.
struct Use<'a> {
    stage: &'a Stage<'a>,
    context: Context,
    drives: Vec<Rc<CrashDrive>>,
    subject: Subject,
    mount: Mount,
    /// Name of the volume.
    name: String,
    file: Rc<File>,
}

pub(super) fn play(stage: &Stage<'_>) {
    stage.run(async |context| {
        let images = stage.images.iter().enumerate();
        let drives = images.map(|(disk, image)| CrashDrive::from_image(&disk_label(disk), image)).collect();
        let Some(mut of) = Use::begin(stage, context, drives).await else { return };
        for round in 0..2 + stage.world.below(3) as u32 {
            if of.play_round(2 * round + 1).await.is_none() || stage.world.is_broken() {
                return;
            }
        }
    });
}

impl<'a> Use<'a> {
    /// `None` where the pool is not whole.
    async fn begin(stage: &'a Stage<'a>, context: Context, drives: Vec<Rc<CrashDrive>>) -> Option<Self> {
        let subject = stage.open(&context, as_drives(&drives)).await.ok()?;
        let names: Vec<String> = subject.facts().into_iter().map(|facts| facts.name).collect();
        let name = stage.world.pick(&names).filter(|_| subject.is_online())?;
        let mount = Mount::new(&context, &subject).ok()?;
        let file = Rc::new(mount.open(&name).await.ok()?);
        Some(Self { stage, context, drives, subject, mount, name, file })
    }

    fn below(&self, limit: u64) -> u64 {
        self.stage.world.below(limit)
    }

    fn broken(&self, promise: &str, detail: &str) {
        self.stage.broken(promise, &format!("{}, open as a file: {detail}", self.name));
    }

    /// The volume through one of the descriptors.
    fn through(&self, descriptor: usize) -> Option<Store> {
        Some(self.subject.volume(&self.name).ok()?.through(&self.file, descriptor))
    }

    fn through_either(&self) -> Option<Store> {
        self.through(self.below(File::DESCRIPTORS as u64) as usize)
    }

    /// Writes a version of all blocks and syncs, writes the next one of some, and reopens the pool.
    /// `None` where that is not possible.
    async fn play_round(&mut self, version: u32) -> Option<()> {
        let store = self.through_either()?;
        for offset in blocks(&store) {
            store.write(offset, &contents(offset, version), false).await.ok()?;
        }
        self.must_succeed(&self.through_either()?, "after writes").await?;
        let newer: Vec<u64> = blocks(&store).step_by(1 + self.below(4) as usize).collect();
        let store = self.through_either()?;
        for offset in &newer {
            store.write(*offset, &contents(*offset, version + 1), false).await.ok()?;
        }
        let is_covered = self.below(4) == 0;
        if is_covered {
            self.must_succeed(&self.through_either()?, "after writes").await?;
        }
        let is_in_order = self.below(4) == 0;
        self.reopen(is_in_order).await?;
        let is_lost = !is_covered && !is_in_order;
        self.stage.world.cover(|coverage| coverage.scenes += u64::from(is_lost));
        self.judge_data(version, &newer, is_lost).await?;
        self.judge_errors(is_lost).await?;
        self.judge_parts().await
    }

    async fn must_succeed(&self, store: &Store, when: &str) -> Option<()> {
        match store.flush().await {
            Ok(()) => Some(()),
            Err(why) => {
                self.broken("nothing-refused", &format!("fsync {when}: {why}"));
                None
            }
        }
    }

    /// Closes the pool, in order or after all drives have lost power, and opens it again. Files
    /// stay open.
    async fn reopen(&mut self, is_in_order: bool) -> Option<()> {
        self.stage.note(&format!("the pool of {} is closed, in order {is_in_order}", self.name));
        let seed = self.stage.world.next_seed();
        if is_in_order {
            self.mount.ends(&self.subject);
            self.subject.close().await.ok()?;
        } else {
            for drive in &self.drives {
                drive.power_cut(seed);
            }
            self.mount.ends(&self.subject);
            // It may fail without any drive.
            let _ = self.subject.close().await;
        }
        // As other objects, so that nothing of the former opening reaches them.
        let again = |(disk, drive): (usize, &Rc<CrashDrive>)| {
            CrashDrive::from_image(&disk_label(disk), &drive.image_after_cut(&disk_label(disk), seed))
        };
        self.drives = self.drives.iter().enumerate().map(again).collect();
        match self.stage.open(&self.context, as_drives(&self.drives)).await {
            Ok(subject) => self.subject = subject,
            Err(why) => {
                self.broken("nothing-refused", &format!("the pool cannot be opened again: {why}"));
                return None;
            }
        }
        self.mount.reopened(&self.subject);
        Some(())
    }

    /// Checks that data covered by an `fsync`, or closed in order, is there.
    async fn judge_data(&self, version: u32, newer: &[u64], is_lost: bool) -> Option<()> {
        let store = self.through_either()?;
        for offset in blocks(&store) {
            let is_newer = newer.contains(&offset);
            if is_newer && is_lost {
                continue;
            }
            if let Err(why) = holds(&store, offset, version + u32::from(is_newer)).await {
                self.broken("flushed-data-survives", &why);
                return None;
            }
        }
        Some(())
    }

    /// Each descriptor reports a loss once; one that was opened after that reports nothing.
    async fn judge_errors(&self, is_lost: bool) -> Option<()> {
        let first = self.below(File::DESCRIPTORS as u64) as usize;
        for descriptor in (0..File::DESCRIPTORS).map(|index| (first + index) % File::DESCRIPTORS) {
            let store = self.through(descriptor)?;
            match store.flush().await {
                Ok(()) if is_lost => {
                    let detail = format!("fsync through descriptor {descriptor} does not report lost writes");
                    self.broken("flush-errors-reach-all", &detail);
                    return None;
                }
                Err(why) if !is_lost || !why.is_io_error => {
                    let detail =
                        format!("fsync through descriptor {descriptor}, lost writes {is_lost}: {why}");
                    self.broken("nothing-refused", &detail);
                    return None;
                }
                _ => {}
            }
            self.must_succeed(&store, "after the loss was reported").await?;
            let later = Rc::new(self.mount.open(&self.name).await.ok()?);
            self.must_succeed(&store.through(&later, 0), "of a file opened after the loss was reported")
                .await?;
        }
        Some(())
    }

    /// Writes the parts of one sector of a block at the same time, through the descriptors in turn,
    /// and checks that each part is there and the rest of the block as it was.
    async fn judge_parts(&self) -> Option<()> {
        let store = self.through_either()?;
        let offsets: Vec<u64> = blocks(&store).collect();
        let offset = self.stage.world.pick(&offsets)?;
        let mut expected = store.read(offset, BLOCK_BYTES as usize).await.ok()?;
        let begin = (self.below(BLOCK_BYTES / SECTOR_BYTES) * SECTOR_BYTES) as usize;
        let part_bytes = SECTOR_BYTES as usize / (2 + self.below(3) as usize);
        let sector = &mut expected[begin..begin + SECTOR_BYTES as usize];
        for (index, part) in sector.chunks_mut(part_bytes).enumerate() {
            part.fill(0xA0 + index as u8);
        }
        let write = async |index: usize, part: &[u8]| {
            let at = offset + (begin + index * part_bytes) as u64;
            let written = self.through(index % File::DESCRIPTORS)?.write(at, part, false).await;
            written.map_err(|why| self.broken("nothing-refused", &format!("a part of a sector: {why}"))).ok()
        };
        let parts = expected[begin..begin + SECTOR_BYTES as usize].chunks(part_bytes).enumerate();
        join_all(parts.map(|(index, part)| write(index, part))).await.into_iter().collect::<Option<()>>()?;
        let found = store.read(offset, BLOCK_BYTES as usize).await.ok()?;
        if let Some(at) = found.iter().zip(&expected).position(|(found, expected)| found != expected) {
            let detail = format!(
                "byte {at} of the block at {offset} holds {:#x}, not {:#x}, after parts of {part_bytes} bytes \
                 were written from byte {begin} on at the same time",
                found[at], expected[at]
            );
            self.broken("no-wrong-bytes", &detail);
            return None;
        }
        Some(())
    }
}

fn as_drives(drives: &[Rc<CrashDrive>]) -> Vec<Rc<dyn Drive>> {
    drives.iter().map(|drive| drive.clone() as Rc<dyn Drive>).collect()
}
