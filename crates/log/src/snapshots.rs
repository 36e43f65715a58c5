//! Snapshots and clones of a log, as their users see them.

use crate::error::LogError;
use crate::log::Log;
use crate::shape::BLOCK_BYTES;
use crate::steps::diff::{LogChanges, diff};
use crate::steps::snapshot::{self, NewSnapshot};

/// A snapshot of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSnapshot {
    /// Its name.
    pub name: String,
    /// Size of the volume then, bytes.
    pub capacity_bytes: u64,
    /// When it was taken, milliseconds since 1970.
    pub created_unix_ms: u64,
}

impl Log {
    /// Takes a snapshot of each of some volumes, all at one instant between this call and its
    /// return. They are durable when it returns; of those of several logs, a power cut may leave a
    /// part. Calls for several logs name them in the same order.
    pub async fn create_snapshots(all: &[(Self, String)], created_unix_ms: u64) -> Result<(), LogError> {
        let new = all.iter().map(|(log, name)| NewSnapshot {
            core: &log.core,
            head: log.head,
            name,
            created_unix_ms,
        });
        snapshot::create(&new.collect::<Vec<_>>()).await
    }

    /// Deletes snapshots, all or none. Clones of them stay.
    pub async fn delete_snapshots(&self, names: &[String]) -> Result<(), LogError> {
        snapshot::delete(&self.core, self.head, names).await
    }

    /// The volume's snapshots, the oldest first.
    pub fn snapshots(&self) -> Vec<LogSnapshot> {
        let state = self.core.state.borrow();
        let snapshots = state.heads.snapshots(self.head).map(|snapshot| LogSnapshot {
            name: snapshot.name.clone(),
            capacity_bytes: snapshot.capacity_blocks * BLOCK_BYTES,
            created_unix_ms: snapshot.created_unix_ms,
        });
        snapshots.collect()
    }

    /// A snapshot, to be read.
    pub fn snapshot(&self, name: &str) -> Result<Self, LogError> {
        let birth = self.core.state.borrow().heads.snapshot(self.head, name)?.birth;
        Ok(Self { snapshot: Some(birth), ..self.clone() })
    }

    /// Number of the snapshot that this is, which no other of the log ever had.
    pub fn snapshot_number(&self) -> Option<u32> {
        self.snapshot
    }

    /// Makes a snapshot's contents those of the volume, and deletes these other snapshots, both or
    /// neither. All others stay, later ones too. Writes wait until it is durable.
    pub async fn roll_back(&self, name: &str, deleted: &[String]) -> Result<(), LogError> {
        snapshot::roll_back(&self.core, self.head, name, deleted).await
    }

    /// Makes a volume with the contents of a snapshot, which shares all blocks with it.
    pub async fn clone_snapshot(&self, name: &str) -> Result<Self, LogError> {
        let head = snapshot::clone(&self.core, self.head, name).await?;
        Ok(Self { head, ..self.clone() })
    }

    /// Number of this volume in its log: 0, or that of a clone.
    pub fn number(&self) -> u32 {
        self.head
    }

    /// Numbers of all volumes of the log: 0 and the clones.
    pub fn numbers(&self) -> Vec<u32> {
        self.core.state.borrow().heads.ids().collect()
    }

    /// The volume of a number.
    pub fn volume(&self, number: u32) -> Result<Self, LogError> {
        self.core.state.borrow().heads.head(number)?;
        Ok(Self { core: self.core.clone(), head: number, snapshot: None })
    }

    /// Deletes this clone with its snapshots. The first volume goes with its log.
    pub async fn delete_clone(&self) -> Result<(), LogError> {
        match self.head {
            0 => Err(LogError::NoSuchClone),
            head => snapshot::delete_clone(&self.core, head).await,
        }
    }

    /// Ranges in which a snapshot differs from an older one, or the volume from a snapshot (`newer`
    /// is `None`); without an older one, all data. Begins at `from_bytes`; the answer says where to
    /// go on.
    pub async fn changes(
        &self,
        older: Option<&str>,
        newer: Option<&str>,
        from_bytes: u64,
    ) -> Result<LogChanges, LogError> {
        let (older, newer) = {
            let heads = &self.core.state.borrow().heads;
            let older = older.map(|name| heads.snapshot_view(self.head, name)).transpose()?;
            let newer = match newer {
                Some(name) => heads.snapshot_view(self.head, name)?,
                None => heads.view(self.head)?.clone(),
            };
            (older, newer)
        };
        diff(&self.core, older.as_ref(), &newer, from_bytes / BLOCK_BYTES).await
    }
}
