//! Lives in which clients use volumes as files of a FUSE mount, each of them open twice: they write
//! through one descriptor, and flush through either. Drawn from a stream of their own
//! ([`crate::Drawn`]).
//!
//! Faults expected: those of any life. A loss of acknowledged writes must be reported through each
//! descriptor, whichever of them wrote.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::Life;
use crate::subject::{File, Mount, Refusal, Store, Subject};
use crate::world::descriptors::{Meaning, Synced};
use crate::world::guarded::{Guarded, Target};

/// A mount in use.
pub(crate) struct Mounted {
    /// Open files by the number of the volume.
    pub(super) files: BTreeMap<u32, Rc<File>>,
    _mount: Mount,
}

impl Life {
    /// In runs that have files: perhaps mounts the volumes and opens each file. Gives the volumes
    /// as clients use them from then on.
    pub(crate) async fn perhaps_mount(&self, subject: &Subject, targets: Vec<Target>) -> Vec<Target> {
        let Some(random) = &self.world.files else { return targets };
        let is_wanted = random.borrow_mut().chance(self.world.bias.mounted);
        if !is_wanted {
            return targets;
        }
        let mount = match Mount::new(&self.context, subject) {
            Ok(mount) => mount,
            Err(why) => {
                self.broken("nothing-refused", format!("mounting: {why}"));
                return targets;
            }
        };
        let mut files = BTreeMap::new();
        for (_, guarded) in &targets {
            match mount.open(&guarded.name).await {
                Ok(file) => {
                    guarded.descriptors.reopen();
                    files.insert(guarded.number, Rc::new(file));
                }
                // A volume that takes no writes cannot be opened for them.
                Err(why) => self.note(&format!("{} cannot be opened as a file: {why}", guarded.name)),
            }
        }
        self.note(&format!("mounted, {} files are open", files.len()));
        self.world.cover(|coverage| coverage.mounted_lives += u64::from(!files.is_empty()));
        *self.mounted.borrow_mut() = Some(Mounted { files, _mount: mount });
        self.targets(subject)
    }

    /// The volume through either descriptor of its file, for an `fsync` that begins, where it is
    /// used as a file.
    pub(super) fn through_either(&self, store: &Store, guarded: &Guarded) -> Store {
        match (store.file(), &self.world.files) {
            (Some((file, _)), Some(random)) => {
                let descriptor = random.borrow_mut().below(File::DESCRIPTORS as u64) as usize;
                guarded.descriptors.begin(descriptor);
                store.through(file, descriptor)
            }
            _ => store.clone(),
        }
    }

    /// Judges an `fsync` that began at `begun`, or a write that includes one, of a volume that is
    /// used as a file. `meaning`: that of an I/O error.
    pub(super) fn synced(
        &self,
        store: &Store,
        guarded: &Guarded,
        begun: u64,
        answer: &Result<(), Refusal>,
        meaning: Meaning,
    ) {
        let Some((_, descriptor)) = store.file() else { return };
        let now = guarded.oracle.borrow_mut().tick();
        let of_error = |why: &Refusal| if why.is_io_error { meaning } else { Meaning::OtherFailure };
        let answer = answer.as_ref().copied().map_err(of_error);
        match guarded.descriptors.end(descriptor, begun, now, answer) {
            Synced::Repeated => self.world.cover(|coverage| coverage.repeated_losses += 1),
            Synced::Silent if !guarded.is_failed.get() && !guarded.is_leaving.get() => {
                let detail = format!(
                    "{}: fsync through descriptor {descriptor} succeeds; it has not reported the loss that \
                     another one has reported",
                    guarded.name
                );
                self.broken("flush-errors-reach-all", detail);
            }
            Synced::Silent | Synced::Failed | Synced::Durable => {}
        }
    }
}
