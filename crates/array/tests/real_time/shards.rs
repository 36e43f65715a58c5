//! Arrays on a thread of their own, used through their handles.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::FutureExt;
use stripewise_array::{
    Array, ArrayError, ArrayHandle, ArrayHost, ArrayOptions, BlockArray, HostRequest, LocalFuture, Member,
    NoHost, PoolSite, ShardLink,
};
use stripewise_drive::{Buffer, BufferPool, Context, Shard, SplitMix64, yield_now};
use stripewise_layout::LayoutSpec;

use crate::linear::{LinearSpec, SlotInit};
use crate::shard::{DRIVES, on_thread, pattern, with_shard};

const BLOCK: usize = 4096;

fn spec() -> LinearSpec {
    let mut layout = LayoutSpec::parse("raid5").expect("a layout's name");
    layout.interleave_bytes = Some(64 << 10);
    let shape = layout.resolve(DRIVES).expect("a valid shape");
    let spec = LinearSpec {
        id: 7,
        shape,
        base_bytes: 1 << 20,
        space_bytes: 28 << 20,
        journal_slabs: 0,
        write_back: true,
        checksums: true,
    };
    let journal_slabs = spec.array_spec().least_journal_bytes().expect("possible") >> 20;
    LinearSpec { journal_slabs, ..spec }
}

/// Makes the array on the thread of `link`, or opens it there.
async fn place(link: &Rc<ShardLink>, is_new: bool) -> Result<ArrayHandle, ArrayError> {
    let open = async move |site: Rc<PoolSite>| {
        let members = on_thread().open_members(&site);
        let init = spec().init(members.into_iter().map(SlotInit::Active).collect())?;
        let (context, buffers, options) = (site.context(), site.buffers(), ArrayOptions::default());
        match is_new {
            true => Array::create(context, buffers, init, site.host(), options).await,
            false => Array::open(context, buffers, init, site.host(), options).await,
        }
    };
    ArrayHandle::place(link, open).await
}

async fn close(array: ArrayHandle) {
    array.call(async |array| array.close().await).await.expect("closed");
}

/// Random writes and reads of one client, which has every eighth block.
async fn use_blocks(array: &ArrayHandle, buffers: &BufferPool, client: u64) -> Vec<Option<u64>> {
    let blocks = array.capacity_bytes() / BLOCK as u64 / 8;
    let (mut random, mut expected) = (SplitMix64::new(client), vec![None; blocks as usize]);
    for step in 0..300 {
        let index = random.below(64.min(blocks));
        let offset = (8 * index + client) * BLOCK as u64;
        if random.below(2) == 0 {
            let seed = 1000 * client + step;
            let data = buffers.allocate(BLOCK);
            data.with_mut(|bytes| bytes.copy_from_slice(&pattern(BLOCK, seed)));
            array.write(offset, data, random.below(8) == 0).await.expect("written");
            expected[index as usize] = Some(seed);
        } else {
            let wanted = expected[index as usize].map_or(vec![0; BLOCK], |seed| pattern(BLOCK, seed));
            let read = array.read(offset, BLOCK).await.expect("read");
            assert!(read.to_vec() == wanted, "client {client}, step {step}");
        }
    }
    expected
}

#[test]
fn data_is_the_same_from_another_thread() {
    with_shard(async |context, buffers, shard| {
        let link = ShardLink::open(context, buffers, shard, Rc::new(NoHost));
        let array = place(&link, true).await.expect("made");
        assert_eq!(array.spec(), &spec().array_spec());
        assert_eq!(array.geometry(), &array.spec().geometry().expect("possible"));
        let clients: Vec<_> = (0..8)
            .map(|client| {
                let (array, buffers) = (array.clone(), buffers.clone());
                context.spawn(async move { use_blocks(&array, &buffers, client).await })
            })
            .collect();
        let mut all = Vec::new();
        for client in clients {
            // Visits beside the load.
            (0..100).for_each(|_| assert_eq!(array.visit(Array::capacity_bytes), array.capacity_bytes()));
            all.push(client.await);
        }
        array.flush().await.expect("flushed");
        close(array).await;
        let array = place(&link, false).await.expect("opened");
        for (client, blocks) in all.iter().enumerate() {
            for (index, seed) in blocks.iter().enumerate().take(64) {
                let offset = (8 * index + client) * BLOCK;
                let wanted = seed.map_or(vec![0; BLOCK], |seed| pattern(BLOCK, seed));
                let read = array.read(offset as u64, BLOCK).await.expect("read");
                assert!(read.to_vec() == wanted, "client {client}, block {index}");
            }
        }
        close(array).await;
    });
}

/// A pool that informs its array of excluded drives, after a time.
struct Excluding {
    context: Context,
    array: RefCell<Option<ArrayHandle>>,
    excluded: Cell<u64>,
}

impl ArrayHost for Excluding {
    fn ask(&self, array: u128, request: HostRequest) -> LocalFuture<'_, Result<(), String>> {
        assert_eq!(array, 7);
        Box::pin(async move {
            if let HostRequest::Exclude { drive, .. } = request {
                assert_eq!(&*drive, "drive2");
                self.context.sleep_ns(5_000_000).await;
                self.excluded.set(self.excluded.get() + 1);
                self.array.borrow().as_ref().expect("open").visit(|array| array.drive_gone(2));
            }
            Ok(())
        })
    }
}

#[test]
fn writes_wait_for_the_pool_to_exclude_a_drive() {
    with_shard(async |context, buffers, shard| {
        let (array, excluded) = (RefCell::default(), Cell::new(0));
        let host = Rc::new(Excluding { context: context.clone(), array, excluded });
        let link = ShardLink::open(context, buffers, shard, host.clone());
        let array = place(&link, true).await.expect("made");
        *host.array.borrow_mut() = Some(array.clone());
        let length = 1 << 20;
        array.write(0, Buffer::from_bytes(&pattern(length, 1)), true).await.expect("written");
        array.visit(|_| on_thread().drives[2].unplug());
        array.write(0, Buffer::from_bytes(&pattern(length, 2)), true).await.expect("written without it");
        assert_eq!(host.excluded.get(), 1, "recorded before the write was acknowledged");
        assert!(!array.visit(Array::is_whole) && !array.visit(|array| array.works_on(2)));
        assert!(array.read(0, length).await.expect("read").to_vec() == pattern(length, 2));
        drop(host.array.take());
        close(array).await;
    });
}

#[test]
fn held_rows_keep_writers_out_of_them() {
    with_shard(async |context, buffers, shard| {
        let link = ShardLink::open(context, buffers, shard, Rc::new(NoHost));
        let array = place(&link, true).await.expect("made");
        let held = array.lock_rows(vec![0]).await;
        let written = {
            let array = array.clone();
            context.spawn(async move { array.write(0, Buffer::from_bytes(&[1; BLOCK]), false).await })
        };
        // A later message is answered, so the write has begun and waits.
        yield_now().await;
        array.call(async |array| array.flush_members().await).await.expect("flushed");
        assert!(!written.is_finished());
        drop(held);
        written.await.expect("written");
        close(array).await;
    });
}

#[test]
fn work_ends_though_its_caller_is_dropped() {
    with_shard(async |context, buffers, shard| {
        let link = ShardLink::open(context, buffers, shard, Rc::new(NoHost));
        let array = place(&link, true).await.expect("made");
        {
            let mut write = pin!(array.write(0, Buffer::from_bytes(&[9; BLOCK]), false));
            assert!((&mut write).now_or_never().is_none());
        }
        // Behind it in the same stripe.
        array.write(BLOCK as u64, Buffer::from_bytes(&[8; BLOCK]), false).await.expect("written");
        while array.visit(|array| array.serves_clients()) {
            yield_now().await;
        }
        let read = array.read(0, 2 * BLOCK).await.expect("read").to_vec();
        assert_eq!((read[0], read[BLOCK]), (9, 8));
        close(array).await;
    });
}

/// A question about the queues of the last opening on the thread.
fn ask_members<R: Send>(shard: &Arc<dyn Shard>, ask: fn(&[Rc<Member>]) -> R) -> R {
    let mut answer = None;
    assert!(shard.visit(&mut || answer = Some(ask(&on_thread().members.borrow()))));
    answer.expect("it was run")
}

#[test]
fn a_shard_drops_a_closed_array() {
    with_shard(async |context, buffers, shard| {
        let link = ShardLink::open(context, buffers, shard, Rc::new(NoHost));
        let array = place(&link, true).await.expect("made");
        let users: fn(&[Rc<Member>]) -> usize = |members| members.iter().map(Rc::strong_count).sum();
        // The thread, the site and its own task have each of them.
        assert!(ask_members(shard, users) > 3 * DRIVES);
        close(array).await;
        while ask_members(shard, users) > 3 * DRIVES {
            yield_now().await;
        }
        drop(link);
    });
}

#[test]
fn a_shard_lets_go_of_drives_of_a_dropped_pool() {
    with_shard(async |context, buffers, shard| {
        let link = ShardLink::open(context, buffers, shard, Rc::new(NoHost));
        let array = place(&link, true).await.expect("made");
        array.write(0, Buffer::from_bytes(&[1; BLOCK]), false).await.expect("written");
        let are_held: fn(&[Rc<Member>]) -> bool =
            |members| members.iter().any(|member| member.drive().is_some());
        assert!(ask_members(shard, are_held));
        drop((array, link));
        while ask_members(shard, are_held) {
            yield_now().await;
        }
    });
}

#[test]
#[should_panic(expected = "seen on its thread")]
fn a_panic_in_a_visit_is_the_visitors() {
    with_shard(async |context, buffers, shard| {
        let link = ShardLink::open(context, buffers, shard, Rc::new(NoHost));
        let array = place(&link, true).await.expect("made");
        array.visit(|_| panic!("seen on its thread"));
    });
}
