//! The time in which this process has a pool open for writing, as the drives see it.
//!
//! Two things are done while it is in use. *Marks*: when something was written to the drives, two
//! commits follow within seconds, of which the second says that all have the first
//! (`superblock/commit.rs`). So a copy of a drive that was made before the writing, put back later,
//! lacks a commit that the others know it had. *Looks*: the headers on the drives are read every
//! few seconds, before a commit, and before a flush is acknowledged; when another session has half
//! of the drives, this one ends: nothing is written and nothing acknowledged any more. After a time
//! in which the drives were not looked at (the machine slept), requests wait for a look.
//!
//! Where most drives can be reached by others past any lock of this machine (*shared*: drives on
//! the network), the marks go on while nothing is written, as a sign of life: who wants to open the
//! pool watches for it (`claims.rs`).
//!
//! Expected faults: other processes and hosts with the same drives and the same identity, a machine
//! that sleeps and wakes, drives that cannot be read.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use futures_util::future::{LocalBoxFuture, join_all};
use stripewise_drive::{Context, DriveKind, IoRequest, Operation};

use crate::Inner;
use crate::error::PoolError;
use crate::manifest::format::Manifest;
use crate::manifest::ids::Id;
use crate::superblock::commit::Change;
use crate::superblock::sessions::Seen;
use stripewise_array::ArrayError;
use stripewise_array::Gate;
use stripewise_array::Member;
use stripewise_array::mutation::{self, Mutation};
use stripewise_drive::Rounds;

const SECOND_NS: u64 = 1_000_000_000;
/// Marks are made this often while something is written.
const MARK_NS: u64 = 5 * SECOND_NS;
/// Signs of life, and looks, of a shared pool.
pub(crate) const LIFE_NS: u64 = 2 * SECOND_NS;
/// Looks of a pool that is not shared.
const LOOK_NS: u64 = 10 * SECOND_NS;
/// A drive that has not answered by then shows nothing.
const ANSWER_NS: u64 = 2 * SECOND_NS;
/// A longer time without a look is too long.
const FRESH_NS: u64 = 2 * LIFE_NS + SECOND_NS;
/// The same of a pool that is not shared.
const FRESH_UNSHARED_NS: u64 = LOOK_NS + MARK_NS;
/// A session that another one has taken the drives of a shared pool from has ended after this.
pub(crate) const END_NS: u64 = FRESH_NS + ANSWER_NS;
/// The same of a pool that is not shared.
pub(crate) const END_UNSHARED_NS: u64 = FRESH_UNSHARED_NS + ANSWER_NS;

/// State of a session.
pub(crate) struct Session {
    pool: Weak<Inner>,
    context: Context,
    /// False if the pool's record names no host; the session is then never checked.
    has_identity: Cell<bool>,
    is_begun: Cell<bool>,
    is_shared: Cell<bool>,
    /// The last commit.
    generation: Cell<u64>,
    /// The last commit when something was written last.
    written_in: Cell<Option<u64>>,
    writes: Cell<u64>,
    requests: Cell<u64>,
    is_kept: Cell<bool>,
    /// When the last look began that showed nothing, and how long the machine had slept by then.
    looked_ns: Cell<u64>,
    slept_ns: Cell<u64>,
    rounds: Rounds,
    is_looking: Cell<bool>,
    is_over: RefCell<Option<String>>,
}

impl Session {
    /// Not begun.
    pub(crate) fn new(pool: Weak<Inner>, context: &Context, generation: u64) -> Rc<Self> {
        Rc::new(Self {
            pool,
            context: context.clone(),
            has_identity: Cell::new(false),
            is_begun: Cell::new(false),
            is_shared: Cell::new(false),
            generation: Cell::new(generation),
            written_in: Cell::new(None),
            writes: Cell::new(0),
            requests: Cell::new(0),
            is_kept: Cell::new(false),
            looked_ns: Cell::new(0),
            slept_ns: Cell::new(0),
            rounds: Rounds::default(),
            is_looking: Cell::new(false),
            is_over: RefCell::default(),
        })
    }

    /// Commits still needed to distinguish a drive from every copy made before the last writing.
    pub(crate) fn marks_due(&self) -> u64 {
        if mutation::is_chosen(Mutation::CopyWithoutMark) {
            return 0;
        }
        self.written_in.get().map_or(0, |at| (at + 2).saturating_sub(self.generation.get()))
    }

    /// True if the pool's drives name this session.
    pub(crate) fn has_identity(&self) -> bool {
        self.has_identity.get()
    }

    fn slept_so_far_ns(&self) -> u64 {
        self.context.boot_ns().saturating_sub(self.context.now_ns())
    }

    /// True if another session may have taken the drives since the last check.
    fn is_stale(&self) -> bool {
        if !self.has_identity.get() || !self.is_begun.get() {
            return false;
        }
        let since_ns = self.context.boot_ns().saturating_sub(self.looked_ns.get());
        since_ns > if self.is_shared.get() { FRESH_NS } else { FRESH_UNSHARED_NS }
    }

    /// True if the machine has slept since the last check, so that others may have had the drives.
    fn has_slept(&self) -> bool {
        self.slept_so_far_ns().abs_diff(self.slept_ns.get()) > FRESH_NS
    }

    /// Why this session is over, if it is.
    pub(crate) fn check(&self) -> Result<(), PoolError> {
        match &*self.is_over.borrow() {
            Some(pool) => Err(PoolError::TakenOver { pool: pool.clone() }),
            None => Ok(()),
        }
    }

    /// Makes sure, before a commit, that the drives are still this session's.
    pub(crate) async fn before_commit(&self) -> Result<(), PoolError> {
        if self.is_begun.get() && self.has_identity.get() && (self.is_shared.get() || self.is_stale()) {
            self.look().await;
        }
        self.check()
    }

    /// As [`Self::before_commit`], when all is durable that is to be acknowledged as such.
    pub(crate) async fn before_acknowledgement(&self) -> Result<(), ArrayError> {
        if !self.has_identity.get() {
            return Ok(());
        }
        self.before_commit().await.map_err(|error| ArrayError::TakenOver(error.to_string()))
    }

    /// Reads what the drives say, or waits for a reading that begins now.
    pub(crate) async fn look(&self) {
        if self.is_over.borrow().is_some() {
            return;
        }
        let Some(round) = self.rounds.begin().await else { return };
        let Some(inner) = self.pool.upgrade() else { return };
        let (began_ns, slept_ns) = (self.context.boot_ns(), self.slept_so_far_ns());
        let targets = inner.drives.targets(&inner.manifest.borrow());
        let looks = targets.iter().filter(|target| !target.member.is_failed()).map(|target| {
            let look = Box::pin(inner.commits.writer.look(target));
            async move {
                (&target.member, self.context.time_limit_ns(ANSWER_NS, look).await.unwrap_or(Seen::Nothing))
            }
        });
        let seen = join_all(looks).await;
        let readable = seen.iter().filter(|(_, seen)| *seen != Seen::Nothing).count();
        let others: Vec<&Rc<Member>> =
            seen.iter().filter(|(_, seen)| *seen == Seen::Other).map(|(member, _)| *member).collect();
        if !others.is_empty() && 2 * others.len() >= readable {
            self.end(&inner);
        } else {
            others.iter().for_each(|member| member.fail("another session of the pool has taken it"));
            if readable > 0 {
                self.looked_ns.set(began_ns);
                self.slept_ns.set(slept_ns);
            }
        }
        round.ends_well();
    }

    /// Another session has the drives: nothing more is written to any.
    fn end(&self, inner: &Inner) {
        self.is_over.replace(Some(inner.name()));
        let why = PoolError::TakenOver { pool: inner.name() }.to_string();
        inner.news.notice(why.clone());
        for member in inner.drives.members() {
            member.fail(&why);
        }
    }

    /// Keeps up marks and looks until nothing was asked of the drives for a while.
    fn keep(&self) {
        let (me, context) = (self.pool.clone(), self.context.clone());
        self.context.spawn(async move {
            loop {
                let Some(inner) = me.upgrade() else { return };
                let pause_ns = if inner.session.is_shared.get() { LIFE_NS } else { MARK_NS };
                drop(inner);
                context.sleep_ns(pause_ns).await;
                let Some(inner) = me.upgrade() else { return };
                if inner.lifecycle.is_closed()
                    || inner.session.check().is_err()
                    || !inner.keep_session().await
                {
                    return;
                }
            }
        });
    }
}

impl Gate for Session {
    fn passes(&self, request: &IoRequest) -> bool {
        self.requests.set(self.requests.get() + 1);
        if !matches!(request.operation, Operation::Read | Operation::Flush) {
            self.writes.set(self.writes.get() + 1);
            self.written_in.set(Some(self.generation.get()));
        }
        if !self.is_kept.replace(true) {
            self.keep();
        }
        if !self.is_stale() {
            return true;
        }
        if self.is_shared.get() || self.has_slept() {
            return false;
        }
        // Drives that this machine has locked: nothing waits for that.
        if !self.is_looking.replace(true) {
            let look = self.decided();
            self.context.spawn(look);
        }
        true
    }

    fn decided(&self) -> LocalBoxFuture<'static, ()> {
        let pool = self.pool.clone();
        Box::pin(async move {
            if let Some(inner) = pool.upgrade() {
                inner.session.look().await;
                inner.session.is_looking.set(false);
            }
        })
    }
}

impl Inner {
    /// The drives are this session's. `identity`: what their headers are to say, where the record
    /// names a host.
    pub(crate) fn name_session(&self, identity: Option<Id>) {
        if let Some(identity) = identity {
            self.commits.writer.begin_session(identity);
            self.session.has_identity.set(true);
        }
    }

    /// The pool is open: from now on its drives are looked at.
    pub(crate) async fn begin_session(&self) -> Result<(), PoolError> {
        let session = &self.session;
        session.looked_ns.set(session.context.boot_ns());
        session.slept_ns.set(session.slept_so_far_ns());
        session.is_begun.set(true);
        self.note_in_session(&self.manifest.borrow());
        session.before_commit().await
    }

    /// A commit counts.
    pub(crate) fn note_in_session(&self, next: &Manifest) {
        let session = &self.session;
        session.generation.set(next.generation);
        let targets = self.drives.targets(next);
        let on_network = targets.iter().filter(|target| target.member.info().kind == DriveKind::Network);
        session.is_shared.set(session.has_identity.get() && 2 * on_network.count() >= targets.len());
        if session.is_shared.get() && !session.is_kept.replace(true) {
            session.keep();
        }
    }

    async fn mark(&self) -> Result<(), PoolError> {
        let inner = self.rc();
        let is_open = move || !inner.lifecycle.is_closed();
        self.try_commit(None, move |_| Ok(if is_open() { Change::Commit(()) } else { Change::Nothing(()) }))
            .await
    }

    /// Marks and looks that are due. Whether there is more to come.
    async fn keep_session(&self) -> bool {
        let session = &self.session;
        let was_used = session.requests.replace(0) > 0;
        let since_ns = self.context.boot_ns().saturating_sub(session.looked_ns.get());
        if session.is_begun.get()
            && session.has_identity.get()
            && was_used
            && since_ns >= LOOK_NS - MARK_NS / 2
        {
            session.look().await;
        }
        if session.is_shared.get() || session.marks_due() > 0 {
            let writes = session.writes.get();
            // A failed mark is tried again at the next write.
            let mut marked = self.mark().await;
            if session.marks_due() > 0 && session.writes.get() == writes && marked.is_ok() {
                marked = self.mark().await;
            }
            if marked.is_err() && !session.is_shared.get() {
                session.is_kept.set(false);
                return false;
            }
        }
        let goes_on = session.is_shared.get() || was_used || session.marks_due() > 0;
        session.is_kept.set(goes_on);
        goes_on
    }
}
