//! Snapshots sent as streams and received by volumes of other pools: exact, in part only as long as
//! the volume says so, and refused where a stream is damaged or does not fit.

use std::io;

use stripewise_array::ArrayError;
use stripewise_drive::{Buffer, Drive, MemoryDrive, SplitMix64};
use stripewise_layout::LayoutSpec;
use stripewise_pool::{
    IncomingStream, Pool, PoolError, ReceiveSpec, Received, StreamError, Volume, VolumeSpec, fuzzing,
};

use crate::io::snapshots::{names, path};
use crate::kit::pool::*;

/// Size of the volume that is sent.
pub const SIZE: u64 = 4 * MIB;
const USUAL: ReceiveSpec = ReceiveSpec { layout: None, reserve_percent: None };

/// All bytes of a stream.
pub async fn sent(pool: &Pool, snapshot: &str, from: Option<&str>) -> Vec<u8> {
    let mut stream = pool.send(&path(snapshot), from).unwrap();
    let mut bytes = Vec::new();
    while let Some(part) = stream.next().await.unwrap() {
        bytes.extend(part.to_vec());
    }
    bytes
}

pub async fn received_as(
    pool: &Pool,
    volume: &str,
    spec: &ReceiveSpec,
    mut bytes: &[u8],
) -> Result<Received, PoolError> {
    let input = async move |to: &mut [u8]| io::Read::read(&mut bytes, to);
    let mut stream = IncomingStream::begin(input).await?;
    pool.receive(volume, spec, &mut stream, |_| ()).await
}

pub async fn received(pool: &Pool, volume: &str, bytes: &[u8]) -> Result<Received, PoolError> {
    received_as(pool, volume, &USUAL, bytes).await
}

async fn all(volume: &Volume) -> Vec<u8> {
    volume.read(0, volume.capacity_bytes() as usize).await.unwrap().to_vec()
}

/// True if a volume and a snapshot of two pools hold the same.
pub async fn is_same(first: &Pool, one: &str, second: &Pool, other: &str) -> bool {
    all(&first.volume(one).unwrap()).await == all(&second.volume(other).unwrap()).await
}

pub fn log_spec(name: &str, size_bytes: u64) -> VolumeSpec {
    VolumeSpec { log: Some(15), ..volume_spec(name, "raid5", Some(size_bytes)) }
}

/// A pool with the volume `v`, and snapshots `one` and `two`: random blocks written and discarded
/// in between.
pub async fn source(life: &Life, drives: &[std::rc::Rc<MemoryDrive>]) -> Pool {
    let pool = Pool::create(&life.context, &life.buffers, spec("from", &as_drives(drives), &[]));
    let pool = pool.await.unwrap();
    let volume = pool.create_volume(log_spec("v", SIZE)).await.unwrap();
    fill(&volume, 1, 8192, 2 * MIB).await;
    pool.create_snapshots(&[path("v@one")]).await.unwrap();
    let mut random = SplitMix64::new(5);
    for _ in 0..60 {
        let at = random.below(SIZE / 4096) * 4096;
        match random.below(4) {
            0 => volume.discard(at, 4096).await.unwrap(),
            _ => volume.write(at, Buffer::from_bytes(&contents(2, at, 4096)), false).await.unwrap(),
        }
    }
    pool.create_snapshots(&[path("v@two")]).await.unwrap();
    fill(&volume, 3, 0, 64 << 10).await;
    pool
}

async fn target(life: &Life, drives: &[std::rc::Rc<MemoryDrive>]) -> Pool {
    Pool::create(&life.context, &life.buffers, spec("to", &as_drives(drives), &[])).await.unwrap()
}

fn stream_error(result: Result<Received, PoolError>) -> StreamError {
    match result {
        Err(PoolError::Stream(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn is_in_part(pool: &Pool, volume: &str) -> bool {
    let refused = pool.volume(volume).map(drop);
    let told = pool.volumes().into_iter().any(|of| of.name == volume && of.receiving.is_some());
    let is_refused = matches!(refused, Err(PoolError::Stream(StreamError::InPart { .. })));
    assert_eq!(told, is_refused, "{refused:?}");
    told
}

#[test]
fn received_snapshots_are_exact() {
    let (from, to) = (memory_drives(4, 64), memory_drives(5, 64));
    let life = Life::new();
    life.run(async {
        let source = source(&life, &from).await;
        let (whole, changed) =
            (sent(&source, "v@one", None).await, sent(&source, "v@two", Some("one")).await);
        assert_eq!(whole, sent(&source, "v@one", None).await, "the same bytes each time");
        assert!(whole.len() as u64 > 2 * MIB && whole.len() as u64 <= 2 * MIB + 4096, "{}", whole.len());
        assert!(changed.len() < 60 * 4200, "{}", changed.len());
        let pool = target(&life, &to).await;
        let spec = ReceiveSpec { layout: Some("raid6".parse().unwrap()), reserve_percent: Some(20) };
        for (name, spec) in [("copy", USUAL), ("other", spec)] {
            let first = received_as(&pool, name, &spec, &whole).await.unwrap();
            assert_eq!((first.data_bytes, first.present_bytes, first.was_resumed), (2 * MIB, 0, false));
            let (one, two) = (format!("{name}@one"), format!("{name}@two"));
            assert!(is_same(&source, "v@one", &pool, name).await);
            received(&pool, name, &changed).await.unwrap();
            assert!(is_same(&source, "v@one", &pool, &one).await, "{name}");
            assert!(is_same(&source, "v@two", &pool, &two).await, "{name}");
            assert!(is_same(&source, "v@two", &pool, name).await, "{name}");
        }
        let info = |name: &str| pool.volume(name).unwrap().info().unwrap();
        assert_eq!(info("copy").shape, source.volume("v").unwrap().info().unwrap().shape);
        assert_eq!(info("copy").capacity_bytes, SIZE);
        let other = info("other");
        assert_eq!((other.shape.level.name(), other.shape.width), ("raid6", 5));
        assert_eq!(other.log.unwrap().reserve_percent, 20);
        let times = |pool: &Pool, volume| pool.snapshots(Some(volume)).unwrap()[1].created_unix_ms;
        assert_eq!(times(&pool, "copy"), times(&source, "v"));
        // A copy is a source itself.
        let again = sent(&pool, "copy@two", None).await;
        received(&pool, "third", &again).await.unwrap();
        assert!(is_same(&source, "v@two", &pool, "third").await);
        pool.close().await.unwrap();
        source.close().await.unwrap();
    });
    drop(life);
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(&to)).await.unwrap();
        for snapshot in ["copy@one", "copy@two", "other@one", "other@two", "third@two"] {
            assert!(names(&pool).contains(&snapshot.to_owned()), "{:?}", names(&pool));
        }
        assert!(is_same(&pool, "copy@two", &pool, "third").await);
        pool.close().await.unwrap();
    });
}

#[test]
fn a_cut_stream_leaves_a_volume_that_is_not_served() {
    let (from, to) = (memory_drives(4, 64), memory_drives(4, 64));
    let life = Life::new();
    life.run(async {
        let source = source(&life, &from).await;
        let (whole, changed) =
            (sent(&source, "v@one", None).await, sent(&source, "v@two", Some("one")).await);
        let pool = target(&life, &to).await;
        let header = u32::from_le_bytes(whole[12..16].try_into().unwrap()) as usize;
        for at in [0, 7, 100, header - 1] {
            let cut = stream_error(received(&pool, "v", &whole[..at]).await);
            assert!(matches!(cut, StreamError::Cut { .. } | StreamError::NoStream), "{at}: {cut:?}");
        }
        assert!(pool.volumes().is_empty(), "nothing before the header is whole");
        for at in [whole.len() / 3, whole.len() - 33, whole.len() - 1] {
            let cut = stream_error(received(&pool, "v", &whole[..at]).await);
            assert!(matches!(cut, StreamError::Cut { .. }), "{at}: {cut:?}");
            assert!(is_in_part(&pool, "v") && names(&pool).is_empty(), "{at}");
        }
        let refused = pool.create_snapshots(&[path("v@mine")]).await;
        assert!(matches!(refused, Err(PoolError::Stream(StreamError::InPart { .. }))), "{refused:?}");
        let other = stream_error(received(&pool, "v", &changed).await);
        assert!(matches!(other, StreamError::OfOther { .. }), "{other:?}");
        let resumed = received(&pool, "v", &whole).await.unwrap();
        assert_eq!((resumed.present_bytes, resumed.was_resumed), (2 * MIB, true));
        assert!(is_same(&source, "v@one", &pool, "v").await && !is_in_part(&pool, "v"));

        let half = &changed[..changed.len() / 2];
        stream_error(received(&pool, "v", half).await);
        assert!(is_in_part(&pool, "v"));
        assert!(is_same(&source, "v@one", &pool, "v@one").await, "the base is served");
        let kept = pool.delete_snapshots(&[path("v@one")]).await;
        assert!(matches!(kept, Err(PoolError::Stream(StreamError::InPart { .. }))), "{kept:?}");
        pool.roll_back(&path("v@one"), false).await.unwrap();
        assert!(is_same(&source, "v@one", &pool, "v").await && !is_in_part(&pool, "v"));
        stream_error(received(&pool, "v", half).await);
        received(&pool, "v", &changed).await.unwrap();
        assert!(is_same(&source, "v@two", &pool, "v").await);
        // A new volume that has a part is deleted like any other.
        stream_error(received(&pool, "w", &whole[..whole.len() / 2]).await);
        pool.delete_volume("w").await.unwrap();
        pool.close().await.unwrap();
    });
}

#[test]
fn damaged_streams_are_refused_record_by_record() {
    let (from, to) = (memory_drives(4, 64), memory_drives(4, 64));
    let life = Life::new();
    life.run(async {
        let source = source(&life, &from).await;
        let changed = sent(&source, "v@two", Some("one")).await;
        let pool = target(&life, &to).await;
        received(&pool, "v", &sent(&source, "v@one", None).await).await.unwrap();
        let mut random = SplitMix64::new(3);
        for round in 0..60 {
            let at = match round {
                0..20 => round as usize * 11,
                _ => random.below(changed.len() as u64) as usize,
            };
            let mut damaged = changed.clone();
            damaged[at] ^= 1 << random.below(8);
            stream_error(received(&pool, "v", &damaged).await);
            assert!(!names(&pool).contains(&"v@two".to_owned()), "a bit at {at}");
        }
        let mut newer = changed.clone();
        newer[8] += 1;
        let newer = stream_error(received(&pool, "v", &newer).await);
        assert_eq!(newer, StreamError::Version { found: 2, known: 1 });
        let longer = [&changed[..], &[0]].concat();
        assert!(matches!(stream_error(received(&pool, "v", &longer).await), StreamError::GoesOn { .. }));
        // A record left out, whose absence only the end record shows.
        let mut short = changed.clone();
        let header = u32::from_le_bytes(short[12..16].try_into().unwrap()) as usize;
        let data = match short[header] {
            1 => u64::from_le_bytes(short[header + 16..header + 24].try_into().unwrap()) as usize,
            _ => 0,
        };
        short.drain(header..header + 32 + data);
        let lacking = stream_error(received(&pool, "v", &short).await);
        assert!(matches!(lacking, StreamError::Corrupted { .. }), "{lacking:?}");
        received(&pool, "v", &changed).await.unwrap();
        assert!(is_same(&source, "v@two", &pool, "v").await);
        pool.close().await.unwrap();
    });
}

#[test]
fn streams_for_other_volumes_are_refused() {
    let (from, to) = (memory_drives(4, 64), memory_drives(4, 96));
    let life = Life::new();
    life.run(async {
        let source = source(&life, &from).await;
        let (whole, changed) =
            (sent(&source, "v@one", None).await, sent(&source, "v@two", Some("one")).await);
        for (to, base) in [("v@one", "two"), ("v@one", "one")] {
            let refused = source.send(&path(to), Some(base)).map(drop);
            assert!(matches!(refused, Err(PoolError::Stream(StreamError::NotOlder { .. }))), "{refused:?}");
        }
        let missing = source.send(&path("v@two"), Some("none")).map(drop);
        assert!(matches!(missing, Err(PoolError::NoSuchSnapshot { .. })), "{missing:?}");
        let pool = target(&life, &to).await;
        pool.create_volume(volume_spec("plain", "raid5", Some(SIZE))).await.unwrap();
        pool.create_volume(log_spec("own", SIZE)).await.unwrap();
        pool.create_snapshots(&[path("own@one")]).await.unwrap();
        received(&pool, "v", &whole).await.unwrap();
        let generation = pool.generation();
        let refused = async |name: &str, bytes: &[u8]| received(&pool, name, bytes).await.unwrap_err();
        assert!(matches!(refused("none", &changed).await, PoolError::NoSuchVolume { .. }));
        assert!(matches!(refused("own", &whole).await, PoolError::VolumeExists { .. }));
        // A caller that did not see the end of it repeats it.
        let again = received(&pool, "v", &whole).await.unwrap();
        assert!(again.was_resumed && again.present_bytes == again.data_bytes);
        assert!(matches!(refused("plain", &changed).await, PoolError::WithoutSnapshots { .. }));
        assert!(matches!(refused("a b", &whole).await, PoolError::BadName { what: "volume", .. }));
        let other_base = |error: PoolError| {
            assert!(matches!(&error, PoolError::Stream(StreamError::OtherBase { .. })), "{error:?}");
        };
        other_base(refused("own", &changed).await);
        let layout = ReceiveSpec { layout: Some("raid5".parse().unwrap()), reserve_percent: None };
        let given = stream_error(received_as(&pool, "v", &layout, &changed).await);
        assert_eq!(given, StreamError::HasLayout);
        let wide = LayoutSpec { columns: Some(9), ..layout.layout.unwrap() };
        let wide = ReceiveSpec { layout: Some(wide), reserve_percent: None };
        let wide = received_as(&pool, "w", &wide, &whole).await;
        assert!(matches!(wide, Err(PoolError::Layout(_))), "{wide:?}");
        assert_eq!(pool.generation(), generation);

        let volume = pool.volume("v").unwrap();
        volume.write(MIB, Buffer::from_bytes(&[9; 4096]), false).await.unwrap();
        let written = stream_error(received(&pool, "v", &changed).await);
        assert!(matches!(written, StreamError::Changed { at: MIB, .. }), "{written:?}");
        pool.create_snapshots(&[path("v@mine")]).await.unwrap();
        other_base(refused("v", &changed).await);
        // Another snapshot of the base's name is another base.
        pool.delete_snapshots(&[path("v@mine"), path("v@one")]).await.unwrap();
        pool.create_snapshots(&[path("v@one")]).await.unwrap();
        other_base(refused("v", &changed).await);
        pool.close().await.unwrap();
    });
}

#[test]
fn one_stream_at_a_time_is_received_by_a_volume() {
    let (from, to) = (memory_drives(4, 64), memory_drives(4, 64));
    let life = Life::new();
    life.run(async {
        let source = source(&life, &from).await;
        let whole = sent(&source, "v@one", None).await;
        let pool = target(&life, &to).await;
        let (again, bytes) = (pool.clone(), whole.clone());
        let mut rest = &whole[..];
        let refused = std::cell::RefCell::new(Vec::new());
        // In the middle of the first, the second and a rollback are tried.
        let input = async |to: &mut [u8]| {
            if rest.len() < whole.len() / 2 && refused.borrow().is_empty() {
                let second = received(&again, "v", &bytes).await;
                refused.borrow_mut().push(second.map(drop));
            }
            io::Read::read(&mut rest, to)
        };
        let mut stream = IncomingStream::begin(input).await.unwrap();
        pool.receive("v", &USUAL, &mut stream, |_| ()).await.unwrap();
        drop(stream);
        let refused = refused.into_inner();
        assert!(matches!(refused[..], [Err(PoolError::Stream(StreamError::Running { .. }))]), "{refused:?}");
        assert!(is_same(&source, "v@one", &pool, "v").await);
        pool.close().await.unwrap();
    });
}

#[test]
fn earlier_users_do_not_write_into_a_stream() {
    let (from, to) = (memory_drives(4, 64), memory_drives(4, 64));
    let life = Life::new();
    life.run(async {
        let source = source(&life, &from).await;
        let (whole, changed) =
            (sent(&source, "v@one", None).await, sent(&source, "v@two", Some("one")).await);
        let pool = target(&life, &to).await;
        received(&pool, "v", &whole).await.unwrap();
        let earlier = pool.volume("v").unwrap();
        let half = &changed[..changed.len() / 2];
        stream_error(received(&pool, "v", half).await);
        // Also while no command is receiving.
        let write = earlier.write(3 * MIB, Buffer::from_bytes(&[7; 4096]), false).await;
        assert!(matches!(write, Err(ArrayError::Log(_))), "{write:?}");
        assert!(earlier.read(0, 4096).await.is_err() && earlier.discard(0, 4096).await.is_err());
        received(&pool, "v", &changed).await.unwrap();
        assert!(is_same(&source, "v@two", &pool, "v").await);
        // It is served again, to all.
        earlier.write(3 * MIB, Buffer::from_bytes(&[7; 4096]), false).await.unwrap();
        pool.close().await.unwrap();
    });
}

#[test]
fn streams_go_on_from_their_own_base_alone() {
    let (from, to) = (memory_drives(4, 64), memory_drives(4, 64));
    let life = Life::new();
    life.run(async {
        let source = source(&life, &from).await;
        source.create_snapshots(&[path("v@three")]).await.unwrap();
        let whole = sent(&source, "v@one", None).await;
        let from_one = sent(&source, "v@three", Some("one")).await;
        let from_two = sent(&source, "v@three", Some("two")).await;
        let pool = target(&life, &to).await;
        received(&pool, "v", &whole).await.unwrap();
        stream_error(received(&pool, "v", &from_one[..from_one.len() / 2]).await);
        let other = stream_error(received(&pool, "v", &from_two).await);
        assert!(matches!(other, StreamError::OfOther { .. }), "{other:?}");
        received(&pool, "v", &from_one).await.unwrap();
        assert!(is_same(&source, "v@three", &pool, "v").await);
        pool.close().await.unwrap();
    });
}

#[test]
fn snapshots_of_a_restored_pool_are_others() {
    let (from, to) = (memory_drives(4, 64), memory_drives(4, 64));
    let life = Life::new();
    life.run(async {
        let pool = Pool::create(&life.context, &life.buffers, spec("from", &as_drives(&from), &[]));
        let pool = pool.await.unwrap();
        pool.create_volume(log_spec("v", SIZE)).await.unwrap();
        pool.close().await.unwrap();
        let copies: Vec<_> = from.iter().map(|drive| drive.duplicate(&drive.info().label)).collect();
        let target = target(&life, &to).await;
        let at_one = async |drives: &[std::rc::Rc<MemoryDrive>], seed: u64| {
            let pool = life.open(&as_drives(drives)).await.unwrap();
            fill(&pool.volume("v").unwrap(), seed, 0, MIB).await;
            pool.create_snapshots(&[path("v@one")]).await.unwrap();
            pool
        };
        let pool = at_one(&from, 1).await;
        received(&target, "v", &sent(&pool, "v@one", None).await).await.unwrap();
        pool.close().await.unwrap();
        life.context.sleep_ns(1_000_000_000).await;
        let pool = at_one(&copies, 2).await;
        pool.create_snapshots(&[path("v@two")]).await.unwrap();
        let changed = sent(&pool, "v@two", Some("one")).await;
        let other = stream_error(received(&target, "v", &changed).await);
        assert!(matches!(other, StreamError::OtherBase { .. }), "{other:?}");
        pool.close().await.unwrap();
        target.close().await.unwrap();
    });
}

#[test]
fn logs_larger_than_any_drives_are_refused() {
    let (life, drives) = (Life::new(), memory_drives(4, 64));
    life.run(async {
        let pool = target(&life, &drives).await;
        for shift in [40, 57, 58, 59, 60] {
            let made = pool.create_volume(log_spec("v", 1 << shift)).await.map(drop);
            assert!(matches!(made, Err(PoolError::NoSpace { .. })), "2^{shift}: {made:?}");
        }
        pool.close().await.unwrap();
    });
}

#[test]
fn deleting_a_snapshot_ends_its_stream() {
    let from = memory_drives(4, 64);
    let life = Life::new();
    life.run(async {
        let pool = source(&life, &from).await;
        let mut stream = pool.send(&path("v@two"), Some("one")).unwrap();
        stream.next().await.unwrap();
        pool.delete_snapshots(&[path("v@one")]).await.unwrap();
        pool.create_snapshots(&[path("v@one")]).await.unwrap();
        let ended = stream.next().await.map(drop);
        assert!(matches!(ended, Err(PoolError::Array(ArrayError::Closed))), "{ended:?}");
        pool.close().await.unwrap();
    });
}

#[test]
fn streams_with_right_checksums_never_panic() {
    let from = memory_drives(4, 64);
    let life = Life::new();
    life.run(async {
        let pool = source(&life, &from).await;
        let good = sent(&pool, "v@two", Some("one")).await;
        assert!(fuzzing::stream(&good).await);
        let mut random = SplitMix64::new(11);
        let mut whole = 0;
        for _ in 0..300 {
            let mut bytes = good[..good.len() - (random.below(3) * 40) as usize].to_vec();
            for _ in 0..1 + random.below(3) {
                let most = [260, bytes.len() as u64][random.below(2) as usize];
                let at = random.below(most) as usize;
                bytes[at] = [bytes[at] ^ (1 << random.below(8)), 0, 0xff][random.below(3) as usize];
            }
            fuzzing::reseal_stream(&mut bytes);
            whole += u32::from(fuzzing::stream(&bytes).await);
        }
        assert!((20..280).contains(&whole), "{whole}");
        pool.close().await.unwrap();
    });
}
