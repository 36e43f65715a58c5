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
use std::sync::Arc;

use futures_util::future::{LocalBoxFuture, join_all};
use stripewise_drive::{Context, DriveKind, IoRequest};

use crate::Inner;
use crate::error::PoolError;
use crate::gate_state::{
    FRESH_NS, FRESH_UNSHARED_NS, GateState, LIFE_NS, LOOK_NS, MARK_NS, Requests, slept_so_far_ns,
};
use crate::manifest::format::Manifest;
use crate::manifest::ids::Id;
use crate::superblock::commit::Change;
use crate::superblock::sessions::Seen;
use stripewise_array::Gate;
use stripewise_array::Member;
use stripewise_array::mutation::{self, Mutation};
use stripewise_array::{ArrayError, ArrayHost, HostRequest};
use stripewise_drive::Rounds;

/// A drive that has not answered by then shows nothing.
const ANSWER_NS: u64 = 2_000_000_000;
/// A session that another one has taken the drives of a shared pool from has ended after this.
pub(crate) const END_NS: u64 = FRESH_NS + ANSWER_NS;
/// The same of a pool that is not shared.
pub(crate) const END_UNSHARED_NS: u64 = FRESH_UNSHARED_NS + ANSWER_NS;

/// State of a session.
pub(crate) struct Session {
    pool: Weak<Inner>,
    context: Context,
    /// Shared with the gates of all threads.
    state: Arc<GateState>,
    /// Counts of the home's own gate.
    gate: Arc<Requests>,
    /// Requests when marks and looks were kept up last.
    seen_requests: Cell<u64>,
    rounds: Rounds,
    is_over: RefCell<Option<String>>,
}

impl Session {
    /// Not begun.
    pub(crate) fn new(pool: Weak<Inner>, context: &Context, generation: u64) -> Rc<Self> {
        let state = Arc::<GateState>::default();
        state.set_generation(generation);
        Rc::new(Self {
            pool,
            context: context.clone(),
            gate: state.new_gate(false),
            state,
            seen_requests: Cell::new(0),
            rounds: Rounds::default(),
            is_over: RefCell::default(),
        })
    }

    /// Commits still needed to distinguish a drive from every copy made before the last writing.
    pub(crate) fn marks_due(&self) -> u64 {
        if mutation::is_chosen(Mutation::CopyWithoutMark) {
            return 0;
        }
        self.state.written_in().map_or(0, |at| (at + 2).saturating_sub(self.state.generation()))
    }

    /// True if the pool's drives name this session.
    pub(crate) fn has_identity(&self) -> bool {
        self.state.has_identity()
    }

    /// State shared with the gates on other threads.
    pub(crate) fn state(&self) -> &Arc<GateState> {
        &self.state
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
        let state = &*self.state;
        let is_checked = state.is_begun() && state.has_identity();
        if is_checked && (state.is_shared() || state.is_stale(&self.context)) {
            self.look().await;
        }
        self.check()
    }

    /// As [`Self::before_commit`], when all is durable that is to be acknowledged as such.
    pub(crate) async fn before_acknowledgement(&self) -> Result<(), ArrayError> {
        if !self.state.has_identity() {
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
        let (began_ns, slept_ns) = (self.context.boot_ns(), slept_so_far_ns(&self.context));
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
                self.state.note_look(began_ns, slept_ns);
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

    /// Looks at the drives because a request asked for it.
    pub(crate) async fn look_for_gate(&self) {
        self.look().await;
        self.state.end_look();
    }

    /// Keeps up marks and looks until nothing was asked of the drives for a while.
    pub(crate) fn keep(&self) {
        let (me, context) = (self.pool.clone(), self.context.clone());
        self.context.spawn(async move {
            loop {
                let Some(inner) = me.upgrade() else { return };
                let pause_ns = if inner.session.state.is_shared() { LIFE_NS } else { MARK_NS };
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
        let passage = self.state.judge(&self.gate, request, &self.context);
        if passage.keeps {
            self.keep();
        }
        if passage.looks {
            let look = self.decided();
            self.context.spawn(look);
        }
        passage.passes
    }

    fn decided(&self) -> LocalBoxFuture<'static, ()> {
        let pool = self.pool.clone();
        Box::pin(async move {
            if let Some(inner) = pool.upgrade() {
                inner.session.look_for_gate().await;
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
            self.session.state.set_identity();
        }
    }

    /// The pool is open: from now on its drives are looked at.
    pub(crate) async fn begin_session(&self) -> Result<(), PoolError> {
        let session = &self.session;
        session.state.note_look(session.context.boot_ns(), slept_so_far_ns(&session.context));
        session.state.begin();
        self.note_in_session(&self.manifest.borrow());
        session.before_commit().await
    }

    /// A commit counts.
    pub(crate) fn note_in_session(&self, next: &Manifest) {
        let (session, state) = (&self.session, &self.session.state);
        state.set_generation(next.generation);
        let targets = self.drives.targets(next);
        let on_network = targets.iter().filter(|target| target.member.info().kind == DriveKind::Network);
        state.set_shared(state.has_identity() && 2 * on_network.count() >= targets.len());
        if state.is_shared() && state.begin_to_keep() {
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
        let (session, state) = (&self.session, &self.session.state);
        let requests = state.requests();
        let was_used = session.seen_requests.replace(requests) != requests;
        let since_ns = state.since_look_ns(&session.context);
        let is_checked = state.is_begun() && state.has_identity();
        if is_checked && was_used && since_ns >= LOOK_NS - MARK_NS / 2 {
            session.look().await;
        }
        if state.is_shared() || session.marks_due() > 0 {
            let writes = state.writes();
            // A failed mark is tried again at the next write.
            let mut marked = self.mark().await;
            if session.marks_due() > 0 && state.writes() == writes && marked.is_ok() {
                marked = self.mark().await;
            }
            if marked.is_err() && !state.is_shared() {
                return state.end_keeping(requests);
            }
        }
        state.is_shared() || was_used || session.marks_due() > 0 || state.end_keeping(requests)
    }
}

/// The gate before the members of another thread.
pub(crate) struct ShardGate {
    state: Arc<GateState>,
    requests: Arc<Requests>,
    context: Context,
    /// Way to the pool.
    host: Rc<dyn ArrayHost>,
}

impl ShardGate {
    /// A gate of the thread of `context`.
    pub(crate) fn new(state: Arc<GateState>, context: &Context, host: Rc<dyn ArrayHost>) -> Rc<Self> {
        Rc::new(Self { requests: state.new_gate(true), state, context: context.clone(), host })
    }

    fn ask(&self, request: HostRequest) -> LocalBoxFuture<'static, ()> {
        let host = self.host.clone();
        // It concerns no array.
        Box::pin(async move { drop(host.ask(0, request).await) })
    }
}

impl Gate for ShardGate {
    fn passes(&self, request: &IoRequest) -> bool {
        let passage = self.state.judge(&self.requests, request, &self.context);
        if passage.keeps {
            self.context.spawn(self.ask(HostRequest::KeepSession));
        }
        if passage.looks {
            self.context.spawn(self.decided());
        }
        passage.passes
    }

    fn decided(&self) -> LocalBoxFuture<'static, ()> {
        self.ask(HostRequest::CheckSession)
    }
}
