//! Heads (the volume and its clones) and snapshots of a log.
//!
//! Blocks that durable roots keep stay: a snapshot that is being deleted, or a tip that is being
//! left by a rollback, *fades* until roots without it are durable. A snapshot that is being made is
//! *pending*, in no roots, until all that it contains is durable.

use crate::error::LogError;
use crate::map::lineage::{Birth, Branches, Kept, LAST_EPOCH, View, branch_start};

/// Snapshots of a log.
const MOST_SNAPSHOTS: usize = 4096;
/// Bytes of a snapshot's name.
const LONGEST_NAME_BYTES: usize = 128;

/// A volume that can be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) id: u32,
    /// Birth of what is written now.
    pub(crate) tip: Birth,
    pub(crate) capacity_blocks: u64,
}

/// A kept state of a head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// Head that it was taken of.
    pub(crate) head: u32,
    pub(crate) birth: Birth,
    pub(crate) capacity_blocks: u64,
    /// When it was taken, milliseconds since 1970.
    pub(crate) created_unix_ms: u64,
    pub(crate) name: String,
}

/// Heads and snapshots as roots have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeadRoots {
    pub(crate) forks: Vec<Birth>,
    /// Number of the next head.
    pub(crate) next_head: u32,
    pub(crate) heads: Vec<Head>,
    pub(crate) snapshots: Vec<Snapshot>,
}

/// Bytes of roots for a branch with a head of its own.
const BRANCH_BYTES: u64 = 32;

impl HeadRoots {
    /// True if there was never more than the volume in the log, or nothing of it is left.
    pub(crate) fn is_plain(&self) -> bool {
        self.snapshots.is_empty() && self.heads.len() == 1 && self.forks.len() == 1
    }
}

/// Heads and snapshots of an open log.
pub(crate) struct Heads {
    branches: Branches,
    next_head: u32,
    heads: Vec<(Head, View)>,
    snapshots: Vec<Snapshot>,
    /// Births that durable roots may still keep.
    fading: Vec<Birth>,
    /// Snapshots that are in no roots yet.
    pending: Vec<Snapshot>,
    /// Head whose writes wait for a rollback.
    rolling_back: Option<u32>,
    kept: Kept,
    /// The heads alone.
    seen_by_heads: Kept,
}

impl Heads {
    /// One head, without snapshots.
    pub(crate) fn new(capacity_blocks: u64) -> Self {
        let head = Head { id: 0, tip: 0, capacity_blocks };
        let roots = HeadRoots { forks: vec![0], next_head: 1, heads: vec![head], snapshots: Vec::new() };
        Self::from_roots(&roots).expect("well formed")
    }

    /// Those of roots; `None` if they are malformed.
    pub(crate) fn from_roots(roots: &HeadRoots) -> Option<Self> {
        let branches = Branches::from_forks(roots.forks.clone())?;
        let mut births = roots.heads.iter().map(|head| head.tip);
        let births_exist = births.all(|birth| branches.has(birth))
            && roots.snapshots.iter().all(|snapshot| branches.has(snapshot.birth));
        if !births_exist {
            return None;
        }
        let heads = roots.heads.iter().map(|head| (head.clone(), branches.view(head.tip))).collect();
        let mut all = Self {
            kept: Kept::new(&branches, []),
            seen_by_heads: Kept::new(&branches, []),
            branches,
            next_head: roots.next_head,
            heads,
            snapshots: roots.snapshots.clone(),
            fading: Vec::new(),
            pending: Vec::new(),
            rolling_back: None,
        };
        all.changed();
        Some(all)
    }

    /// Those that roots of this instant have.
    pub(crate) fn roots(&self) -> HeadRoots {
        HeadRoots {
            forks: self.branches.forks().to_vec(),
            next_head: self.next_head,
            heads: self.heads.iter().map(|(head, _)| head.clone()).collect(),
            snapshots: self.snapshots.clone(),
        }
    }

    fn changed(&mut self) {
        for (head, view) in &mut self.heads {
            *view = self.branches.view(head.tip);
        }
        let heads = self.heads.iter().map(|(head, _)| head.tip);
        self.seen_by_heads = Kept::new(&self.branches, heads.clone());
        let snapshots = self.snapshots.iter().chain(&self.pending).map(|snapshot| snapshot.birth);
        let tips = heads.chain(snapshots).chain(self.fading.iter().copied());
        self.kept = Kept::new(&self.branches, tips);
    }

    /// Viewers whose versions are live.
    pub(crate) fn kept(&self) -> &Kept {
        &self.kept
    }

    /// Heads as viewers: what they do not see is kept for snapshots alone.
    pub(crate) fn seen_by_heads(&self) -> &Kept {
        &self.seen_by_heads
    }

    /// Bytes of the roots with what is being made.
    pub(crate) fn roots_bytes(&self) -> u64 {
        let mut roots = self.roots();
        roots.snapshots.extend(self.pending.iter().cloned());
        roots.bytes()
    }

    /// View of the only viewer; `None` if there are several.
    pub(crate) fn only_view(&self) -> Option<&View> {
        let (_, view) = self.heads.first().filter(|_| self.kept.is_single())?;
        Some(view)
    }

    fn find(&self, id: u32) -> Result<&(Head, View), LogError> {
        self.heads.iter().find(|(head, _)| head.id == id).ok_or(LogError::NoSuchClone)
    }

    /// A head.
    pub(crate) fn head(&self, id: u32) -> Result<&Head, LogError> {
        self.find(id).map(|(head, _)| head)
    }

    /// View of a head.
    pub(crate) fn view(&self, id: u32) -> Result<&View, LogError> {
        self.find(id).map(|(_, view)| view)
    }

    /// Numbers of the heads.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.heads.iter().map(|(head, _)| head.id)
    }

    /// Birth of a head's next write; `None` while a rollback makes it wait.
    pub(crate) fn writes_at(&self, id: u32) -> Result<Option<Birth>, LogError> {
        let tip = self.head(id)?.tip;
        Ok((self.rolling_back != Some(id)).then_some(tip))
    }

    /// Snapshots of a head, the oldest first.
    pub(crate) fn snapshots(&self, id: u32) -> impl Iterator<Item = &Snapshot> {
        self.snapshots.iter().filter(move |snapshot| snapshot.head == id)
    }

    /// Number of all snapshots.
    pub(crate) fn snapshot_count(&self) -> usize {
        self.snapshots.len()
    }

    /// A snapshot of a head.
    pub(crate) fn snapshot(&self, id: u32, name: &str) -> Result<&Snapshot, LogError> {
        let found = self.snapshots(id).find(|snapshot| snapshot.name == name);
        found.ok_or_else(|| LogError::NoSuchSnapshot { name: name.into() })
    }

    /// The snapshot of a birth, which no two have.
    pub(crate) fn snapshot_of(&self, birth: Birth) -> Result<&Snapshot, LogError> {
        self.snapshots.iter().find(|snapshot| snapshot.birth == birth).ok_or(LogError::SnapshotGone)
    }

    /// View of the snapshot of a birth.
    pub(crate) fn view_of(&self, birth: Birth) -> Result<View, LogError> {
        Ok(self.branches.view(self.snapshot_of(birth)?.birth))
    }

    /// View of a snapshot.
    pub(crate) fn snapshot_view(&self, id: u32, name: &str) -> Result<View, LogError> {
        Ok(self.branches.view(self.snapshot(id, name)?.birth))
    }

    /// Takes a snapshot of this instant, in roots that have this much room for snapshots. It is in
    /// no roots before [`Self::complete_snapshots`].
    pub(crate) fn begin_snapshot(
        &mut self,
        id: u32,
        name: &str,
        created_unix_ms: u64,
        room_bytes: u64,
    ) -> Result<(), LogError> {
        let head = self.head(id)?.clone();
        let all = self.snapshots.iter().chain(&self.pending);
        if all.clone().any(|snapshot| snapshot.head == id && snapshot.name == name) {
            return Err(LogError::SnapshotExists { name: name.into() });
        }
        if name.is_empty() || name.len() > LONGEST_NAME_BYTES {
            return Err(LogError::SnapshotName { name: name.into() });
        }
        let snapshots = all.count();
        if snapshots >= MOST_SNAPSHOTS || head.tip & LAST_EPOCH == LAST_EPOCH {
            return Err(LogError::TooManySnapshots { snapshots });
        }
        let Head { tip: birth, capacity_blocks, .. } = head;
        let new = Snapshot { head: id, birth, capacity_blocks, created_unix_ms, name: name.into() };
        self.pending.push(new);
        if self.roots_bytes() > room_bytes {
            self.pending.pop();
            return Err(LogError::TooManySnapshots { snapshots });
        }
        self.set_tip(id, birth + 1);
        Ok(())
    }

    /// Lets the next roots have the pending snapshots: their contents are durable.
    pub(crate) fn complete_snapshots(&mut self) {
        self.snapshots.append(&mut self.pending);
        self.changed();
    }

    /// Gives up the pending snapshots.
    pub(crate) fn drop_snapshots(&mut self) {
        self.pending.clear();
        self.changed();
    }

    fn set_tip(&mut self, id: u32, tip: Birth) {
        self.heads.iter_mut().filter(|(head, _)| head.id == id).for_each(|(head, _)| head.tip = tip);
        self.changed();
    }

    /// Deletes snapshots, all or none. Their versions are kept until [`Self::faded`].
    pub(crate) fn delete_snapshots(&mut self, id: u32, names: &[String]) -> Result<(), LogError> {
        for name in names {
            self.snapshot(id, name)?;
        }
        let is_gone = |snapshot: &mut Snapshot| snapshot.head == id && names.contains(&snapshot.name);
        self.fading.extend(self.snapshots.extract_if(.., is_gone).map(|snapshot| snapshot.birth));
        self.changed();
        Ok(())
    }

    /// Begins a branch, in roots that have this much room.
    fn fork(&mut self, at: Birth, room_bytes: u64) -> Result<Birth, LogError> {
        if self.roots_bytes() + BRANCH_BYTES > room_bytes {
            return Err(LogError::TooManyBranches);
        }
        self.branches.fork(at).ok_or(LogError::TooManyBranches)
    }

    /// Makes the contents of a snapshot those of its head. Writes wait, and what the head had is
    /// kept, until [`Self::faded`].
    pub(crate) fn roll_back(&mut self, id: u32, name: &str, room_bytes: u64) -> Result<(), LogError> {
        let birth = self.snapshot(id, name)?.birth;
        let left = self.head(id)?.tip;
        let tip = self.fork(birth, room_bytes)?;
        self.fading.push(left);
        self.rolling_back = Some(id);
        self.set_tip(id, tip);
        Ok(())
    }

    /// Adds a head with the contents of a snapshot.
    pub(crate) fn add_clone(&mut self, id: u32, name: &str, room_bytes: u64) -> Result<u32, LogError> {
        let Snapshot { birth, capacity_blocks, .. } = *self.snapshot(id, name)?;
        let tip = self.fork(birth, room_bytes)?;
        let new = self.next_head;
        self.next_head += 1;
        let view = self.branches.view(tip);
        self.heads.push((Head { id: new, tip, capacity_blocks }, view));
        self.changed();
        Ok(new)
    }

    /// Deletes a clone with its snapshots. Its versions are kept until [`Self::faded`].
    pub(crate) fn delete_clone(&mut self, id: u32) -> Result<(), LogError> {
        let tip = self.head(id)?.tip;
        let gone = self.snapshots(id).map(|snapshot| snapshot.birth).chain([tip]).collect::<Vec<_>>();
        self.fading.extend(gone);
        self.snapshots.retain(|snapshot| snapshot.head != id);
        self.heads.retain(|(head, _)| head.id != id);
        self.changed();
        Ok(())
    }

    /// Notes that roots of this state are durable.
    pub(crate) fn faded(&mut self) {
        self.fading.clear();
        self.rolling_back = None;
        self.changed();
    }

    /// Notes births that recovery finds after the roots: those of a snapshot that was not complete.
    pub(crate) fn found(&mut self, births: impl Iterator<Item = Birth>) {
        let mut has_moved = false;
        for birth in births {
            let of_branch = |head: &Head| branch_start(head.tip) == branch_start(birth) && head.tip < birth;
            for (head, _) in self.heads.iter_mut().filter(|(head, _)| of_branch(head)) {
                head.tip = birth;
                has_moved = true;
            }
        }
        if has_moved {
            self.changed();
        }
    }
}
