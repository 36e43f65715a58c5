//! A burst of small writes that fits the journal is acknowledged from it, whatever it held before:
//! after an idle period the whole burst, right after other writes most of it. Measured by the few
//! requests to the data drives, since a write in place reads and writes data and parity, and
//! destaging has not started.

use std::rc::Rc;

use crate::kit::pool::{Life, MIB, memory_drives, spec, volume_spec};
use futures_util::future::join_all;
use stripewise_drive::{BufferPool, Drive, Pace, PacedDrive, SplitMix64};
use stripewise_pool::{Pool, PoolSpec, VolumeSpec};

const BLOCK: u64 = 4096;
const SPAN: u64 = 256 * MIB;
const CLIENTS: u64 = 32;
const BURST: u64 = 256;
/// Capacity in writes of an empty journal of this size if each reservation is exact. With
/// reservations for writes of partial blocks, 32 of them took the space of 60 more.
const FULL_BURST: u64 = 352;
const QUIET_NS: u64 = 12_000_000_000;

/// Requests to the data drives during the burst, counted in writes in place.
fn written_in_place(pace: &str, quiet_ns: u64, burst: u64) -> u64 {
    let life = Life::new();
    let buffers = BufferPool::new(64 << 20);
    let pace: Pace = pace.parse().expect("a pace");
    life.run(async {
        let memory = memory_drives(6, 2048);
        let drives: Vec<Rc<dyn Drive>> = memory
            .iter()
            .map(|drive| {
                PacedDrive::new(&life.context, drive.clone() as Rc<dyn Drive>, pace) as Rc<dyn Drive>
            })
            .collect();
        let (data, journals) = drives.split_at(4);
        let pool = PoolSpec { journals: journals.to_vec(), ..spec("tank", data, &[]) };
        let pool = Pool::create(&life.context, &buffers, pool).await.expect("a pool");
        let wish = VolumeSpec { write_back: Some(true), ..volume_spec("data", "raid5", Some(2304 * MIB)) };
        let volume = pool.create_volume(wish).await.expect("a volume");
        // The end of each piece is a partial stripe, which the journal holds with its data.
        let piece = buffers.allocate_zeroed((4 * MIB) as usize);
        for at in (0..SPAN).step_by(piece.len()) {
            volume.write(at, piece.clone(), false).await.expect("written");
        }
        volume.flush().await.expect("flushed");
        life.context.sleep_ns(quiet_ns).await;

        let requests = || -> u64 {
            let drives = pool.status().drives;
            let members = drives.iter().take(4).filter_map(|drive| pool.member(drive.id));
            members.map(|member| member.counters().requests).sum()
        };
        let before = requests();
        let client = async |number: u64| {
            let mut random = SplitMix64::new(number);
            let block = buffers.allocate_zeroed(BLOCK as usize);
            for _ in 0..burst / CLIENTS {
                volume
                    .write(random.below(SPAN / BLOCK) * BLOCK, block.clone(), false)
                    .await
                    .expect("written");
            }
        };
        join_all((0..CLIENTS).map(client)).await;
        let in_place = (requests() - before) / 4;
        pool.close().await.expect("closed");
        in_place
    })
}

#[test]
fn burst_after_idle_is_all_journaled() {
    // On the disk a larger burst would last until destaging begins.
    for (pace, burst) in [("200MB/s,125iops", BURST), ("500MB/s,10000iops", FULL_BURST)] {
        let in_place = written_in_place(pace, QUIET_NS, burst);
        assert!(in_place < 4, "{in_place} of {burst} writes went in place on drives of {pace}");
    }
}

#[test]
fn burst_after_other_writes_is_mostly_journaled() {
    let in_place = written_in_place("200MB/s,125iops", 0, BURST);
    assert!(in_place < BURST / 2, "{in_place} of {BURST} writes went in place");
}
