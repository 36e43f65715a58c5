//! Arrays of a pool, made and opened on the thread that they will live on.
//!
//! What goes there can be sent: places, and drives named by their labels. There the labels are
//! resolved to queues, and the array gets the clock, the buffers and the way to the pool that
//! belong to the thread. Today there is one such thread, that of the pool. In virtual time arrays
//! are spread over shards ([`DrawnShards`]), to which messages take a time.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

use stripewise_drive::{Context, SplitMix64};

use crate::volume::shadow::Shadow;
use crate::volume::thin::PoolHost;
use crate::{DrawnShards, Inner};
use stripewise_array::{
    Array, ArrayError, ArrayHandle, ArrayHost, ArrayInit, HostRequest, LocalFuture, Member, MemberLabel,
    Route,
};

/// Parameters of an array that another thread could be given.
pub(crate) type NamedInit = ArrayInit<MemberLabel>;

/// The shards that arrays may be on.
pub(crate) struct ArraySites {
    /// Routes to all but the home.
    routes: Vec<Rc<Route>>,
    /// Number of arrays placed: they go to the shards in turn.
    arrays: Cell<usize>,
}

impl ArraySites {
    pub(crate) fn new(context: &Context, drawn: Option<DrawnShards>) -> Self {
        let DrawnShards { shards, seed } = drawn.unwrap_or_default();
        let mut random = SplitMix64::new(seed);
        let routes = (1..shards).map(|_| Route::new(context, random.next_u64())).collect();
        // A pool with one volume has it elsewhere as well.
        Self { routes, arrays: Cell::new(seed as usize % shards) }
    }

    /// The shard of the next array; `None`: the home.
    fn next(&self) -> Option<Rc<Route>> {
        let number = self.arrays.replace(self.arrays.get() + 1) % (self.routes.len() + 1);
        number.checked_sub(1).map(|index| self.routes[index].clone())
    }
}

/// The pool, as an array on another shard reaches it.
struct FarHost {
    host: Rc<dyn ArrayHost>,
    route: Rc<Route>,
}

impl ArrayHost for FarHost {
    fn ask(&self, array: u128, request: HostRequest) -> LocalFuture<'_, Result<(), String>> {
        let host = self.host.clone();
        Box::pin(self.route.on_home(async move { host.ask(array, request).await }))
    }

    fn member(&self, drive: &MemberLabel) -> Option<Rc<Member>> {
        self.host.member(drive)
    }
}

impl Inner {
    /// Makes a new array.
    pub(crate) async fn create_array(&self, init: NamedInit) -> Result<ArrayHandle, ArrayError> {
        let (pool, options) = (self.rc(), self.options.array);
        self.place_array(init, async move |init, host| {
            let init = init.on_thread_of(&*host);
            Array::create(&pool.context, &pool.buffers, init, host, options).await
        })
        .await
    }

    /// Opens an array that exists.
    pub(crate) async fn open_array(&self, init: NamedInit) -> Result<ArrayHandle, ArrayError> {
        let (pool, options) = (self.rc(), self.options.array);
        self.place_array(init, async move |init, host| {
            let init = init.on_thread_of(&*host);
            Array::open(&pool.context, &pool.buffers, init, host, options).await
        })
        .await
    }

    /// Opens an array for reading only, since what its journal holds cannot be put in place: the
    /// file system under `drive` is full.
    pub(crate) async fn open_array_in_memory(
        &self,
        init: NamedInit,
        drive: String,
    ) -> Result<ArrayHandle, ArrayError> {
        let (pool, options) = (self.rc(), self.options.array);
        self.place_array(init, async move |init, host| {
            let mut init = init.on_thread_of(&*host);
            init.read_only = true;
            for array_member in &mut init.members {
                let shadow = Shadow::over_member(&pool.context, &array_member.member);
                array_member.member = Member::new(&pool.context, shadow, pool.options.member());
                pool.drives.add_shadow(array_member.member.clone());
            }
            let array = Array::open(&pool.context, &pool.buffers, init, host, options).await?;
            array.fill_up(&drive);
            Ok(array)
        })
        .await
    }

    /// Makes or opens an array on the next shard.
    async fn place_array<F: Future<Output = Result<Array, ArrayError>>>(
        &self,
        init: NamedInit,
        make: impl FnOnce(NamedInit, Rc<dyn ArrayHost>) -> F + 'static,
    ) -> Result<ArrayHandle, ArrayError> {
        let (init, host) = (can_be_sent(init), PoolHost::of(self));
        let Some(route) = self.sites.next() else { return make(init, host).await.map(ArrayHandle::from) };
        let host = Rc::new(FarHost { host, route: route.clone() });
        let made = route.on_shard(async move { make(init, host).await }).await;
        made.map(|array| ArrayHandle::behind(&route, array))
    }
}

/// Has the compiler prove that a value can go to another thread.
fn can_be_sent<T: Send + 'static>(value: T) -> T {
    value
}
