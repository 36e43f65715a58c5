//! The cost of a request to an array on another shard, counted in virtual time with 2 to 32 shards.
//! Each shard has one slice of a volume of at most eight; clients are on the home, sixteen for each
//! other shard.

use std::rc::Rc;

use stripewise_array::ArrayOptions;
use stripewise_array::tuning::Tuning;
use stripewise_drive::{Buffer, MessageCounts, SplitMix64};
use stripewise_pool::{DrawnShards, Pool, PoolOptions, PoolSpec, Volume};

use crate::kit::pool::*;
use crate::kit::slices::sliced;

const CLIENTS_PER_SHARD: u64 = 16;
const REQUESTS_PER_CLIENT: u64 = 20;
const MOST_SLICES: u32 = 8;
const BLOCK: u64 = 4096;
const EXTENT: u64 = 256 << 10;

/// Messages and locks of one request to another shard.
struct Cost {
    messages: f64,
    locks: f64,
}

/// Reads or writes random blocks, all clients at once.
async fn load(life: &Life, volumes: &[Rc<Volume>], shards: u64, writes: bool) {
    let clients = (0..(shards - 1) * CLIENTS_PER_SHARD).map(|client| {
        let volumes = volumes.to_vec();
        life.context.spawn(async move {
            let mut random = SplitMix64::new(client);
            for _ in 0..REQUESTS_PER_CLIENT {
                let volume = &volumes[random.below(volumes.len() as u64) as usize];
                let offset = random.below(volume.capacity_bytes() / BLOCK) * BLOCK;
                if writes {
                    let data = Buffer::from_bytes(&contents(client, offset, BLOCK as usize));
                    volume.write(offset, data, false).await.expect("written");
                } else {
                    volume.read(offset, BLOCK as usize).await.expect("read");
                }
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await;
    }
}

fn cost(shards: u32, writes: bool) -> Cost {
    let (life, images) = (Life::new(), memory_drives(4, 256));
    life.run(async {
        let tuning = Tuning { slice_extent_bytes: EXTENT, ..Tuning::default() };
        let array = ArrayOptions { tuning, ..ArrayOptions::default() };
        let drawn_shards = Some(DrawnShards { shards: shards as usize, seed: 1 });
        let options = PoolOptions { array, drawn_shards, ..options(9) };
        let spec = PoolSpec { options, ..spec("tank", &as_drives(&images), &[]) };
        let pool = Pool::create(&life.context, &life.buffers, spec).await.expect("a pool");
        let slices = shards.min(MOST_SLICES);
        let mut volumes = Vec::new();
        for number in 0..shards / slices {
            let size = u64::from(slices) * 2 * EXTENT;
            let spec = sliced(&format!("a{number}"), "raid0", slices, size);
            volumes.push(Rc::new(full_volume(&pool, spec, 1).await));
        }
        let before = MessageCounts::of_this_thread();
        load(&life, &volumes, shards.into(), writes).await;
        let after = MessageCounts::of_this_thread();
        let all = f64::from(shards - 1) * (CLIENTS_PER_SHARD * REQUESTS_PER_CLIENT) as f64;
        // One slice is on the home.
        let far = all * (1.0 - 1.0 / f64::from(shards));
        let per_request = |after: u64, before: u64| (after - before) as f64 / far;
        let cost = Cost {
            messages: per_request(after.messages, before.messages),
            locks: per_request(after.locks, before.locks),
        };
        drop(volumes);
        pool.close().await.expect("closed");
        cost
    })
}

#[test]
fn many_shards_cost_no_more_per_request() {
    for writes in [false, true] {
        let two = cost(2, writes);
        println!("writes: {writes}; shards 2: {:.2} messages, {:.2} locks", two.messages, two.locks);
        for shards in [4, 8, 16, 32] {
            let many = cost(shards, writes);
            println!("shards {shards}: {:.2} messages, {:.2} locks", many.messages, many.locks);
            assert!((1.8..2.2).contains(&many.messages), "a question and its answer: {}", many.messages);
            assert!(many.locks < 0.8, "messages go together: {} locks", many.locks);
            assert!(many.locks < 1.1 * two.locks, "{shards} shards: {} against {}", many.locks, two.locks);
        }
    }
}
