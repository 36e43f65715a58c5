//! Power is cut at each write of receiving a stream: the volume is served as it was or as the
//! stream has it, or not at all, and the same stream sent again makes it whole.
//!
//! Invariant I40 (`docs/internals/invariants.md`).

use std::rc::Rc;

use stripewise_drive::{Buffer, MemoryDrive};
use stripewise_pool::Pool;

use crate::io::snapshots::{names, path};
use crate::io::streams::{log_spec, received, sent};
use crate::kit::pool::*;

const SIZE: u64 = MIB;
const CHANGED: u64 = 64 << 10;

/// A whole stream of contents of seed 1, and one of a change of the first bytes to seed 2.
fn streams() -> [Vec<u8>; 2] {
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&memory_drives(4, 32)), &[]).await.unwrap();
        let volume = pool.create_volume(log_spec("v", SIZE)).await.unwrap();
        fill(&volume, 1, 0, SIZE / 2).await;
        pool.create_snapshots(&[path("v@one")]).await.unwrap();
        fill(&volume, 2, 0, CHANGED).await;
        volume.discard(CHANGED, 8192).await.unwrap();
        pool.create_snapshots(&[path("v@two")]).await.unwrap();
        let streams = [sent(&pool, "v@one", None).await, sent(&pool, "v@two", Some("one")).await];
        pool.close().await.unwrap();
        streams
    })
}

/// Drives of a pool that has received the whole stream, if there is one.
fn before(whole: Option<&[u8]>) -> Vec<Rc<MemoryDrive>> {
    let images = memory_drives(4, 32);
    let life = Life::new();
    life.run(async {
        let pool = Pool::create(&life.context, &life.buffers, spec("to", &as_drives(&images), &[]));
        let pool = pool.await.unwrap();
        if let Some(whole) = whole {
            received(&pool, "copy", whole).await.unwrap();
        }
        pool.close().await.unwrap();
    });
    images
}

/// Fails unless a volume or snapshot has the contents of the one or the other snapshot.
async fn judge(pool: &Pool, name: &str, is_second: bool, what: &str) {
    let volume = pool.volume(name).unwrap_or_else(|error| panic!("{what}: {name}: {error}"));
    let mut expected = contents(1, 0, SIZE as usize / 2);
    expected.resize(SIZE as usize, 0);
    if is_second {
        expected[..CHANGED as usize].copy_from_slice(&contents(2, 0, CHANGED as usize));
        expected[CHANGED as usize..CHANGED as usize + 8192].fill(0);
    }
    let read: Buffer = volume.read(0, SIZE as usize).await.unwrap();
    assert!(read.to_vec() == expected, "{what}: {name}");
}

/// Cuts power at a write while a stream is received; true if it was acknowledged before.
fn cut_at(images: &[Rc<MemoryDrive>], stream: &[u8], is_second: bool, at: u64) -> (bool, bool) {
    let cut = Cut::over(images, at);
    let life = Life::new();
    let done = life.run(async {
        let pool = life.open(&cut.drives(&life.context)).await.unwrap();
        cut.arm(at);
        received(&pool, "copy", stream).await.is_ok()
    });
    drop(life);
    let what = format!("cut at write {at}");
    let (life, left) = (Life::new(), cut.images());
    let was_in_part = life.run(async {
        let pool = life.open(&as_drives(&left)).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        let info = pool.volumes().into_iter().find(|volume| volume.name == "copy");
        let is_in_part = info.as_ref().is_some_and(|volume| volume.receiving.is_some());
        let own = if is_second { "copy@two" } else { "copy@one" };
        let has_own = names(&pool).contains(&own.to_owned());
        assert!(!done || (has_own && !is_in_part), "{what}: an acknowledged stream is lost");
        if is_second {
            judge(&pool, "copy@one", false, &what).await;
        }
        if is_in_part {
            assert!(pool.volume("copy").is_err(), "{what}: served in part");
        } else if info.is_some() {
            // The record of a whole volume says so only after its snapshot.
            assert!(has_own || is_second, "{what}: whole without a snapshot");
            judge(&pool, "copy", has_own && is_second, &what).await;
        }
        if is_in_part || !has_own {
            let again = received(&pool, "copy", stream).await;
            let again = again.unwrap_or_else(|error| panic!("{what}: again: {error}"));
            assert_eq!(again.was_resumed, is_in_part, "{what}");
        }
        for name in ["copy", own] {
            judge(&pool, name, is_second, &what).await;
        }
        pool.close().await.unwrap();
        is_in_part
    });
    (done, was_in_part)
}

fn cut_everywhere(is_second: bool) {
    let [whole, changed] = streams();
    let images = before(is_second.then_some(&whole[..]));
    let stream = if is_second { changed } else { whole };
    let mut outcomes = Vec::new();
    loop {
        let outcome = cut_at(&images, &stream, is_second, outcomes.len() as u64 + 1);
        outcomes.push(outcome);
        if outcome.0 {
            break;
        }
    }
    let in_part = outcomes.iter().filter(|(_, in_part)| *in_part).count();
    assert!(in_part >= 4 && outcomes.len() - in_part >= 4, "{outcomes:?}");
}

/// Drives of a pool that has received two snapshots and a part of a third, and the stream of that.
fn with_a_part() -> (Vec<Rc<MemoryDrive>>, Vec<u8>) {
    let [whole, changed] = streams();
    let images = before(None);
    let life = Life::new();
    let third = life.run(async {
        let source = life.create(&as_drives(&memory_drives(4, 32)), &[]).await.unwrap();
        received(&source, "v", &whole).await.unwrap();
        received(&source, "v", &changed).await.unwrap();
        fill(&source.volume("v").unwrap(), 3, SIZE / 2, CHANGED).await;
        source.create_snapshots(&[path("v@three")]).await.unwrap();
        let pool = life.open(&as_drives(&images)).await.unwrap();
        received(&pool, "copy", &sent(&source, "v@one", None).await).await.unwrap();
        received(&pool, "copy", &sent(&source, "v@two", Some("one")).await).await.unwrap();
        let third = sent(&source, "v@three", Some("two")).await;
        received(&pool, "copy", &third[..third.len() / 2]).await.unwrap_err();
        pool.close().await.unwrap();
        source.close().await.unwrap();
        third
    });
    (images, third)
}

/// Cuts power at a write while a volume with a part goes back behind its base; true if it was done.
fn rollback_cut_at(images: &[Rc<MemoryDrive>], third: &[u8], at: u64) -> bool {
    let cut = Cut::over(images, at);
    let life = Life::new();
    let done = life.run(async {
        let pool = life.open(&cut.drives(&life.context)).await.unwrap();
        cut.arm(at);
        pool.roll_back(&path("copy@one"), true).await.is_ok()
    });
    drop(life);
    let what = format!("cut at write {at}");
    let (life, left) = (Life::new(), cut.images());
    life.run(async {
        let pool = life.open(&as_drives(&left)).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        judge(&pool, "copy@one", false, &what).await;
        match received(&pool, "copy", third).await {
            Ok(_) => {
                assert!(!done, "{what}: it has gone back");
                judge(&pool, "copy@two", true, &what).await;
                let volume = pool.volume("copy").unwrap();
                assert_eq!(holds(&volume, 3, SIZE / 2, CHANGED).await, Ok(()), "{what}");
                assert_eq!(holds(&volume, 2, 0, CHANGED).await, Ok(()), "{what}");
            }
            Err(_) => {
                pool.roll_back(&path("copy@one"), true).await.unwrap_or_else(|e| panic!("{what}: {e}"));
                judge(&pool, "copy", false, &what).await;
            }
        }
        pool.close().await.unwrap();
    });
    done
}

#[test]
fn rollback_behind_a_base_survives_cuts() {
    let (images, third) = with_a_part();
    let writes = (1..).find(|at| rollback_cut_at(&images, &third, *at)).expect("it ends");
    assert!(writes > 6, "{writes}");
}

test_cases! {
    receiving_survives_a_cut_at_each_write = cut_everywhere {
        of_a_whole_stream: false,
        of_an_incremental_stream: true,
    }
}
