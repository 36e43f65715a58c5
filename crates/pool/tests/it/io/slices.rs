//! Volumes that are cut into slices: requests, sizes and space, as one array would have them.

use crate::kit::pool::*;
use crate::kit::slices::{create, open, scrubbed_clean, sliced, with_extents, written};
use stripewise_drive::{Buffer, Drive, DriveInfo, ModelDrive, ModelSpec, SplitMix64};
use stripewise_pool::{Pool, PoolError, PoolSpec, Volume, VolumeSpec};

const SIZE: u64 = 7 * MIB + 12 * 1024;
const SECTOR: u64 = 512;

/// A range of sectors.
fn draw_range(random: &mut SplitMix64, longest_bytes: u64) -> (u64, u64) {
    let length = SECTOR * (1 + random.below(longest_bytes / SECTOR));
    let offset = random.below((SIZE - length) / SECTOR + 1) * SECTOR;
    (offset, length)
}

async fn check(volume: &Volume, model: &[u8], offset: u64, length: u64) {
    let read = volume.read(offset, length as usize).await.expect("read").to_vec();
    assert!(read == model[offset as usize..(offset + length) as usize], "{length} bytes at {offset}");
}

/// Random requests, compared with a copy in memory.
async fn use_at_random(volume: &Volume, model: &mut [u8], random: &mut SplitMix64) {
    for _ in 0..120 {
        let longest_bytes = [8192, 256 << 10, 3 << 20][random.below(3) as usize];
        let (offset, length) = draw_range(random, longest_bytes);
        let range = offset as usize..(offset + length) as usize;
        match random.below(10) {
            0..=4 => {
                let data: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
                model[range].copy_from_slice(&data);
                let fua = random.chance(0.2);
                volume.write(offset, Buffer::from_bytes(&data), fua).await.expect("written");
            }
            5 => {
                model[range].fill(0);
                volume.write_zeroes(offset, length).await.expect("zeroed");
            }
            6 => {
                volume.discard(offset, length).await.expect("discarded");
                let read = volume.read(offset, length as usize).await.expect("read").to_vec();
                for (now, before) in read.chunks(512).zip(model[range.clone()].chunks(512)) {
                    assert!(now == before || now.iter().all(|byte| *byte == 0), "at {offset}");
                }
                model[range].copy_from_slice(&read);
            }
            7 => volume.flush().await.expect("flushed"),
            8 => check_extents(volume, model, offset, length),
            _ => check(volume, model, offset, length).await,
        }
    }
    check_extents(volume, model, 0, SIZE);
    check(volume, model, 0, SIZE).await;
}

/// Unwritten stretches hold zeros, and the stretches cover the range.
fn check_extents(volume: &Volume, model: &[u8], offset: u64, length: u64) {
    let extents = volume.extents(offset, length, usize::MAX).expect("known");
    let mut at = offset;
    let mut before = None;
    for extent in &extents {
        let range = at as usize..(at + extent.length_bytes) as usize;
        assert!(extent.written || model[range].iter().all(|byte| *byte == 0), "at {at}");
        assert_ne!(before.replace(extent.written), Some(extent.written), "neighbours are joined");
        at += extent.length_bytes;
    }
    assert_eq!(at, offset + length);
    let is_unwritten = volume.is_unwritten(offset, length).expect("known");
    assert_eq!(is_unwritten, extents.iter().all(|extent| !extent.written));
    let first = volume.extents(offset, length, 1).expect("known");
    assert_eq!(first[..], extents[..1]);
}

fn read_as_written(slices: u32) {
    for (number, layout) in ["raid5", "raid1", "raid0", "raid6"].into_iter().enumerate() {
        let images = memory_drives(4, 96);
        let mut random = SplitMix64::new(u64::from(slices) * 10 + number as u64);
        let mut model = vec![0; SIZE as usize];
        let extent_bytes = 4096 << random.below(8);
        for life in 0..3 {
            let life_of = Life::new();
            life_of.run(async {
                let drives = as_drives(&images);
                let volume = match life {
                    0 => {
                        let pool = create(&life_of, &drives, extent_bytes).await;
                        pool.create_volume(sliced("data", layout, slices, SIZE)).await.expect("a volume")
                    }
                    _ => open(&life_of, &drives).await.expect("opened").volume("data").expect("it is there"),
                };
                assert_eq!((volume.capacity_bytes(), volume.arrays().len()), (SIZE, slices as usize));
                check(&volume, &model, 0, SIZE).await;
                use_at_random(&volume, &mut model, &mut random).await;
                scrubbed_clean(&volume).await;
                volume.pool().close().await.expect("closed");
                assert!(volume.closing().was_in_order());
            });
        }
    }
}

test_cases! {
    requests_across_slices_read_what_was_written = read_as_written {
        two: 2,
        three: 3,
        eight: 8,
    }
}

#[test]
fn extents_go_to_the_slices_in_turn() {
    let images = memory_drives(4, 96);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let pool = create(&life, &drives, 4 * MIB).await;
        let volume = pool.create_volume(sliced("data", "raid5", 3, 60 * MIB)).await.expect("a volume");
        let info = volume.info().expect("it is there");
        // Stripes of 192 KiB: 32 of them.
        assert_eq!((info.slices, info.slice_extent_bytes), (3, Some(6 * MIB)));
        for extent in [1, 3, 5] {
            fill(&volume, 1, extent * 6 * MIB, 3 * MIB).await;
        }
        volume.flush().await.expect("flushed");
        assert_eq!(written(&volume), [3 * MIB, 3 * MIB, 3 * MIB]);
        fill(&volume, 1, 7 * 6 * MIB, 6 * MIB).await;
        volume.flush().await.expect("flushed");
        assert_eq!(written(&volume), [3 * MIB, 9 * MIB, 3 * MIB]);
        assert_eq!(volume.info().expect("it is there").written_bytes, Some(15 * MIB));
        pool.close().await.expect("closed");
        let pool = open(&life, &drives).await.expect("opened");
        let volume = pool.volume("data").expect("it is there");
        assert_eq!(written(&volume), [3 * MIB, 9 * MIB, 3 * MIB]);
        for (extent, bytes) in [(1, 3 * MIB), (3, 3 * MIB), (5, 3 * MIB), (7, 6 * MIB)] {
            holds(&volume, 1, extent * 6 * MIB, bytes).await.expect("as written");
        }
    });
}

/// Flags of features that a reader must know, in the headers of a drive's slots.
fn flags(drive: &stripewise_drive::MemoryDrive) -> u64 {
    let bytes = image(drive);
    let of_slot = |slot: usize| {
        let at = slot * (512 << 10) + 16;
        u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
    };
    of_slot(0) | of_slot(1)
}

#[test]
fn programs_that_know_no_slices_refuse_the_pool() {
    for (slices, is_refused) in [(1, false), (2, true)] {
        let images = memory_drives(4, 48);
        let life = Life::new();
        life.run(async {
            let pool = create(&life, &as_drives(&images), 4096).await;
            pool.create_volume(sliced("data", "raid5", slices, 8 * MIB)).await.expect("a volume");
            pool.close().await.expect("closed");
        });
        let flags: Vec<u64> = images.iter().map(|drive| flags(drive) & 4096).collect();
        assert_eq!(flags, [if is_refused { 4096 } else { 0 }; 4]);
    }
}

#[test]
fn impossible_slices_are_refused_and_take_no_space() {
    let images = memory_drives(4, 48);
    let life = Life::new();
    life.run(async {
        let pool = create(&life, &as_drives(&images), 4 * MIB).await;
        let refused = async |spec: VolumeSpec| pool.create_volume(spec).await.err().expect("refused");
        for slices in [0, 9, u32::MAX] {
            assert!(matches!(refused(sliced("a", "raid5", slices, MIB)).await, PoolError::BadSetting(_)));
        }
        let small = refused(sliced("a", "raid5", 3, 17 * MIB)).await;
        assert!(matches!(small, PoolError::TooSmallForSlices { least_bytes, .. } if least_bytes == 18 * MIB));
        let large = refused(sliced("a", "raid5", 3, 1 << 40)).await;
        assert!(matches!(large, PoolError::NoSpace { possible_bytes, .. } if possible_bytes > 60 * MIB));
        let log = VolumeSpec { log: Some(15), ..sliced("a", "raid5", 2, 20 * MIB) };
        assert!(matches!(refused(log).await, PoolError::BadSetting(_)));
        assert_eq!(pool.status().allocated_bytes, 0);
        pool.create_volume(sliced("a", "raid5", 1, MIB)).await.expect("one slice is a usual volume");
    });
}

#[test]
fn volumes_on_seek_bound_drives_have_one_slice() {
    let images = memory_drives(4, 48);
    let life = Life::new();
    life.run(async {
        let speed = ModelSpec { latency_ns: 1000, bytes_per_second: 1 << 30, queue_depth: 4 };
        let seeking = images.iter().map(|image| {
            let drive = ModelDrive::new(&life.context, &image.info().label, 48 * MIB, speed, image.clone());
            let info = DriveInfo { gap_bytes: 1 << 20, ..drive.info().clone() };
            std::rc::Rc::new(Seeking { drive, info }) as std::rc::Rc<dyn Drive>
        });
        let spec =
            PoolSpec { options: with_extents(4096), ..spec("tank", &seeking.collect::<Vec<_>>(), &[]) };
        let pool = Pool::create(&life.context, &life.buffers, spec).await.expect("a pool");
        let refused = pool.create_volume(sliced("a", "raid5", 2, 8 * MIB)).await.err();
        assert!(matches!(refused, Some(PoolError::SeekBoundSlices { slices: 2, .. })), "{refused:?}");
        let plain = VolumeSpec { slices: None, ..sliced("a", "raid5", 1, 8 * MIB) };
        assert_eq!(pool.create_volume(plain).await.expect("a volume").arrays().len(), 1);
    });
}

/// A drive that says that a position costs it much.
struct Seeking {
    drive: std::rc::Rc<ModelDrive>,
    info: DriveInfo,
}

impl Drive for Seeking {
    fn info(&self) -> &DriveInfo {
        &self.info
    }

    fn submit(&self, request: stripewise_drive::IoRequest) -> stripewise_drive::Completion {
        self.drive.submit(request)
    }
}

#[test]
fn slices_are_resized_together() {
    for thin in [false, true] {
        let images = memory_drives(4, 96);
        let life = Life::new();
        life.run(async {
            let drives = as_drives(&images);
            let pool = create(&life, &drives, 192 << 10).await;
            let spec = VolumeSpec { thin, ..sliced("data", "raid5", 4, 20 * MIB) };
            let volume = full_volume(&pool, spec, 1).await;
            let larger = 33 * MIB + 4096;
            pool.resize_volume("data", larger).await.expect("room");
            assert_eq!(volume.capacity_bytes(), larger);
            holds(&volume, 1, 0, 20 * MIB).await.expect("kept");
            assert!(volume.is_unwritten(24 * MIB, 9 * MIB).expect("known"));
            fill(&volume, 1, 20 * MIB, larger - 20 * MIB).await;
            volume.flush().await.expect("flushed");
            let refused = pool.resize_volume("data", 30 * MIB).await.err();
            assert!(matches!(refused, Some(PoolError::StoredBeyond { .. })), "{refused:?}");
            let small = pool.resize_volume("data", 700 << 10).await.err();
            assert!(matches!(small, Some(PoolError::TooSmallForSlices { .. })), "{small:?}");
            holds(&volume, 1, 0, larger).await.expect("kept");
            volume.discard(9 * MIB, larger - 9 * MIB).await.expect("discarded");
            volume.write_zeroes(9 * MIB, larger - 9 * MIB).await.expect("zeroed");
            pool.resize_volume("data", 9 * MIB).await.expect("nothing is there");
            let beyond = volume.write(9 * MIB - 4096, Buffer::from_bytes(&[1; 8192]), false).await;
            assert!(beyond.is_err() && volume.read(9 * MIB, 4096).await.is_err());
            holds(&volume, 1, 0, 9 * MIB).await.expect("kept");
            pool.resize_volume("data", 20 * MIB).await.expect("room");
            let read = volume.read(9 * MIB, 11 << 20).await.expect("read").to_vec();
            assert!(read.iter().all(|byte| *byte == 0));
            // One block, in the third slice.
            let place = 98 * (192 << 10);
            fill(&volume, 1, place, 4096).await;
            let refused = pool.resize_volume("data", 18 * MIB).await.err();
            assert!(matches!(refused, Some(PoolError::StoredBeyond { .. })), "{refused:?}");
            holds(&volume, 1, place, 4096).await.expect("kept");
            pool.close().await.expect("closed");
            let pool = open(&life, &drives).await.expect("opened");
            let volume = pool.volume("data").expect("it is there");
            assert_eq!(volume.capacity_bytes(), 20 * MIB);
            holds(&volume, 1, 0, 9 * MIB).await.expect("kept");
            scrubbed_clean(&volume).await;
        });
    }
}

#[test]
fn sliced_volume_grows_into_all_free_space() {
    let images = memory_drives(4, 96);
    let life = Life::new();
    life.run(async {
        let pool = create(&life, &as_drives(&images), 192 << 10).await;
        let volume = full_volume(&pool, sliced("data", "raid5", 3, 20 * MIB), 1).await;
        let before = pool.status().allocated_bytes;
        let refused = pool.resize_volume("data", 1 << 30).await.err();
        assert!(
            matches!(refused, Some(PoolError::NoSpace { needed_rows, free_rows, .. })
            if needed_rows > free_rows && free_rows > 0),
            "{refused:?}"
        );
        assert_eq!(pool.status().allocated_bytes, before, "what was taken is given back");
        let largest = pool.largest_size("data").expect("known");
        assert!(largest > 150 * MIB, "{largest}");
        pool.resize_volume("data", largest).await.expect("there is room");
        assert_eq!(pool.largest_size("data").expect("known"), largest);
        holds(&volume, 1, 0, 20 * MIB).await.expect("kept");
        pool.create_volume(sliced("rest", "raid5", 1, 12 * MIB)).await.err().expect("no room is left");
    });
}

#[test]
fn thin_slices_take_and_give_back_rows() {
    let images = memory_drives(4, 48);
    let life = Life::new();
    life.run(async {
        let pool = create(&life, &as_drives(&images), 6 * MIB).await;
        let spec = VolumeSpec { thin: true, ..sliced("data", "raid5", 4, 1 << 30) };
        let volume = pool.create_volume(spec).await.expect("a volume");
        let rows = || volume.info().expect("it is there").rows;
        let all = rows().1;
        assert_eq!(rows(), (0, all));
        fill(&volume, 1, 0, 24 * MIB).await;
        volume.flush().await.expect("flushed");
        // Two rows of 3 MiB for each extent, and perhaps some more that are allocated ahead.
        assert!((8..=24).contains(&rows().0), "{:?}", rows());
        volume.discard(0, 1 << 30).await.expect("discarded");
        volume.flush().await.expect("flushed");
        volume.discard(0, 1 << 30).await.expect("discarded");
        assert_eq!(rows(), (0, all), "all rows were given back");
        assert!(volume.is_unwritten(0, 1 << 30).expect("known"));
    });
}

#[test]
fn sliced_volume_is_deleted_whole() {
    let images = memory_drives(4, 48);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let pool = create(&life, &drives, 4096).await;
        let volume = full_volume(&pool, sliced("data", "raid6", 5, 20 * MIB), 1).await;
        pool.delete_volume("data").await.expect("deleted");
        assert_eq!(pool.status().allocated_bytes, 0);
        assert!(volume.flush().await.is_err() && volume.read(0, 4096).await.is_err());
        pool.close().await.expect("closed");
        assert!(open(&life, &drives).await.expect("opened").volumes().is_empty());
    });
}
