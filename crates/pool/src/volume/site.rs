//! Arrays of a pool, made and opened on the shard that they will live on.
//!
//! What goes there can be sent: places, and drives named by their labels. There the labels are
//! resolved to queues, and the array gets the clock, the buffers and the way to the pool that
//! belong to the shard. In real time the shards are threads of the process, if all drives of the
//! pool can be opened on each; in virtual time they are groups of tasks ([`DrawnShards`]).

use std::cell::Cell;
use std::future::Future;
use std::rc::{Rc, Weak};

use stripewise_drive::{BufferPool, Context, SplitMix64};

use crate::session::{Session, ShardGate};
use crate::volume::shadow::Shadow;
use crate::volume::thin::PoolHost;
use crate::{DrawnShards, Inner, PoolOptions};
use stripewise_array::{
    Array, ArrayError, ArrayHandle, ArrayHost, ArrayInit, ArrayOptions, Member, MemberLabel, PoolSite,
    ShardLink,
};

/// Parameters of an array that another thread could be given.
pub(crate) type NamedInit = ArrayInit<MemberLabel>;

/// The shards that arrays may be on.
pub(crate) struct ArraySites {
    /// Ways to all but the home.
    links: Vec<Rc<ShardLink>>,
    /// Number of arrays placed: they go to the shards in turn.
    arrays: Cell<usize>,
}

impl ArraySites {
    /// With links to the threads of `context`, or to shards of virtual time.
    pub(crate) fn new(
        context: &Context,
        buffers: &BufferPool,
        options: &PoolOptions,
        pool: &Weak<Inner>,
    ) -> Rc<Self> {
        let mut links = Vec::new();
        if options.member.threads > 1 {
            let open = |shard| ShardLink::open(context, buffers, shard, PoolHost::of(pool));
            links.extend(context.shards().iter().map(open));
        }
        let DrawnShards { shards, seed } = options.drawn_shards.unwrap_or_default();
        let mut random = SplitMix64::new(seed);
        let mut drawn = || ShardLink::drawn(context, buffers, random.next_u64(), PoolHost::of(pool));
        links.extend((1..shards).map(|_| drawn()));
        // A pool with one volume has it elsewhere: its listeners and jobs are on the home.
        let first = options.drawn_shards.map_or(1, |_| seed as usize);
        Rc::new(Self { arrays: Cell::new(first % (links.len() + 1)), links })
    }

    /// Opens a drive for the arrays of all threads; `session` has the state of its gates.
    pub(crate) fn open_member(&self, member: &Member, session: &Session) {
        for link in &self.links {
            let state = session.state().clone();
            link.open_member(member, move |context, host| ShardGate::new(state, context, host));
        }
    }

    /// The way to the shard of the next array; `None`: the home.
    fn next(&self) -> Option<&Rc<ShardLink>> {
        let number = self.arrays.replace(self.arrays.get() + 1) % (self.links.len() + 1);
        number.checked_sub(1).map(|index| &self.links[index])
    }
}

/// Clock, buffers and pool of an array on its shard.
struct Surroundings {
    context: Context,
    buffers: BufferPool,
    host: Rc<dyn ArrayHost>,
    options: ArrayOptions,
}

impl Surroundings {
    async fn create(self, init: NamedInit) -> Result<Array, ArrayError> {
        let init = init.on_thread_of(&*self.host);
        Array::create(&self.context, &self.buffers, init, self.host, self.options).await
    }

    async fn open(self, init: NamedInit) -> Result<Array, ArrayError> {
        let init = init.on_thread_of(&*self.host);
        Array::open(&self.context, &self.buffers, init, self.host, self.options).await
    }
}

impl Inner {
    /// Makes a new array.
    pub(crate) async fn create_array(&self, init: NamedInit) -> Result<ArrayHandle, ArrayError> {
        self.place_array(async move |surroundings: Surroundings| surroundings.create(init).await).await
    }

    /// Opens an array that exists.
    pub(crate) async fn open_array(&self, init: NamedInit) -> Result<ArrayHandle, ArrayError> {
        self.place_array(async move |surroundings: Surroundings| surroundings.open(init).await).await
    }

    /// Opens an array for reading only, since what its journal holds cannot be put in place: the
    /// file system under `drive` is full. It stays on the home, as the changes in memory do.
    pub(crate) async fn open_array_in_memory(
        &self,
        init: NamedInit,
        drive: String,
    ) -> Result<ArrayHandle, ArrayError> {
        let Surroundings { context, buffers, host, options } = self.surroundings();
        let mut init = init.on_thread_of(&*host);
        init.read_only = true;
        for array_member in &mut init.members {
            let shadow = Shadow::over_member(&context, &array_member.member);
            array_member.member = Member::new(&context, shadow, self.options.member());
            self.drives.add_shadow(array_member.member.clone());
        }
        let array = Array::open(&context, &buffers, init, host, options).await?;
        array.fill_up(&drive);
        Ok(array.into())
    }

    /// Makes or opens an array on the next shard.
    async fn place_array<F: Future<Output = Result<Array, ArrayError>>>(
        &self,
        make: impl FnOnce(Surroundings) -> F + Send + 'static,
    ) -> Result<ArrayHandle, ArrayError> {
        let Some(link) = self.sites.next() else {
            return make(self.surroundings()).await.map(ArrayHandle::from);
        };
        let options = self.options.array;
        let place = async move |site: Rc<PoolSite>| {
            let (context, buffers) = (site.context().clone(), site.buffers().clone());
            make(Surroundings { context, buffers, host: site.host(), options }).await
        };
        ArrayHandle::place(link, place).await
    }

    fn surroundings(&self) -> Surroundings {
        let (context, buffers) = (self.context.clone(), self.buffers.clone());
        Surroundings { context, buffers, host: PoolHost::of(&self.me), options: self.options.array }
    }
}
