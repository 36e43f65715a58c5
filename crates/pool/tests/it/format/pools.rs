//! Pools on healthy drives: made, opened in any order, looked at, and everything that is to be
//! refused.

use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_drive::{Completion, Drive, DriveInfo, IoRequest, MemoryDrive};
use stripewise_layout::Level;
use stripewise_pool::{
    Condition, DriveState, EventKind, OpenMode, Pin, Pool, PoolError, PoolOptions, PoolSpec, PoolState, Role,
    VolumeSpec, VolumeState, inspect,
};

const CRC: crc_fast::CrcAlgorithm = crc_fast::CrcAlgorithm::Crc32Iscsi;

#[test]
fn a_pool_is_the_same_in_every_order_of_its_drives() {
    let drives = as_drives(&memory_drives(4, 24));
    let life = Life::new();
    life.run(async {
        let pool = life.create(&drives, &[]).await.unwrap();
        let volume = pool.create_volume(volume_spec("data", "raid5", None)).await.unwrap();
        assert_eq!(
            volume.capacity_bytes(),
            3 * 16 * MIB,
            "24 MiB less two for superblocks, one for checksums, one for the map, four for the journal"
        );
        fill(&volume, 1, 0, 20 * MIB).await;
        pool.close().await.unwrap();
    });
    for order in permutations(&drives) {
        let life = Life::new();
        life.run(async {
            let pool = life.open(&order).await.unwrap();
            assert_eq!(pool.name(), "tank");
            assert_eq!(pool.notices(), Vec::<String>::new());
            let volume = pool.volume("data").unwrap();
            assert!(!volume.needs_resync(), "it was closed in order");
            holds(&volume, 1, 0, 20 * MIB).await.unwrap();
            assert_eq!(volume.read(30 * MIB, 4096).await.unwrap().to_vec(), vec![0; 4096]);
            let status = pool.status();
            assert_eq!((status.state, status.condition), (PoolState::Online, Condition::AllThere));
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn inspecting_a_drive_describes_its_pool_read_only() {
    let images = memory_drives(3, 16);
    let drives = as_drives(&images);
    let life = Life::new();
    life.run(async {
        assert_eq!(inspect(&*drives[0]).await.unwrap(), None);
        let pool = life.create(&drives[..2], &drives[2..]).await.unwrap();
        pool.create_volume(volume_spec("data", "raid1", Some(5 * MIB))).await.unwrap();
        pool.close().await.unwrap();
        let before: Vec<_> = images.iter().map(|drive| image(drive)).collect();
        let label = inspect(&*drives[1]).await.unwrap().unwrap();
        assert_eq!((label.pool_name.as_str(), label.pool_id), ("tank", pool.id()));
        assert_eq!(
            (label.role, label.state.as_str(), label.generation),
            (Role::Data, "online", 3),
            "made, one volume, and a mark since it was written to"
        );
        assert_eq!(label.drives.len(), 3);
        assert_eq!(label.drives[2].role, Role::Spare);
        assert_eq!(label.drives[1].id, label.drive_id);
        assert_eq!(label.volumes[0].capacity_bytes, 5 * MIB);
        assert!(label.volumes[0].on_this_drive);
        let spare = inspect(&*drives[2]).await.unwrap().unwrap();
        assert!(spare.role == Role::Spare && !spare.volumes[0].on_this_drive);
        let after: Vec<_> = images.iter().map(|drive| image(drive)).collect();
        assert!(before == after);
    });
}

/// The headers are intact: the drive still belongs to a pool.
#[test]
fn unreadable_pool_drive_needs_force_to_overwrite() {
    let images = memory_drives(3, 8);
    let drives = as_drives(&images);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&drives[..2], &[]).await.unwrap();
        let id = pool.id();
        pool.close().await.unwrap();
        let whole = image(&images[1]);
        for at in (0..whole.len()).step_by(4096).filter(|at| whole[*at..].starts_with(b"SWCHKPNT")) {
            images[1].poke(at as u64 + 64, &[0xee; 64]);
        }
        let before = image(&images[1]);
        let is_told = |error: &PoolError| {
            matches!(error, PoolError::UnreadableState { drive, pool_id } if drive == "drive1" && *pool_id == id)
        };
        let mut wanted = spec("other", &drives[1..], &[]);
        let error = Pool::create(&life.context, &life.buffers, wanted.clone()).await.err().unwrap();
        assert!(is_told(&error), "{error}");
        let error = inspect(&*drives[1]).await.unwrap_err();
        assert!(is_told(&error), "{error}");
        assert!(image(&images[1]) == before);
        wanted.force = true;
        Pool::create(&life.context, &life.buffers, wanted).await.unwrap().close().await.unwrap();
        assert_eq!(inspect(&*drives[1]).await.unwrap().unwrap().pool_name, "other");
    });
}

#[test]
fn pool_drives_need_force_to_overwrite() {
    let images = memory_drives(3, 8);
    let drives = as_drives(&images);
    let life = Life::new();
    life.run(async {
        let first = life.create(&drives[..2], &[]).await.unwrap();
        first.close().await.unwrap();
        let before = image(&images[1]);
        let mut wanted = spec("other", &drives[1..], &[]);
        let error = Pool::create(&life.context, &life.buffers, wanted.clone()).await.err().unwrap();
        let PoolError::DriveOfOtherPool { drive, pool_name, pool_id } = &error else { panic!("{error}") };
        assert_eq!((drive.as_str(), pool_name.as_str(), *pool_id), ("drive1", "tank", first.id()));
        assert!(image(&images[1]) == before);
        wanted.force = true;
        let second = Pool::create(&life.context, &life.buffers, wanted).await.unwrap();
        second.close().await.unwrap();
        assert_eq!(inspect(&*drives[1]).await.unwrap().unwrap().pool_id, second.id());

        let error = life.open(&drives).await.err().unwrap();
        assert!(matches!(&error, PoolError::SeveralPools { first, .. } if first == "drive0"), "{error}");
        let copy: Rc<dyn Drive> = images[1].duplicate("copy of drive1");
        let error = life.open(&[drives[1].clone(), copy, drives[2].clone()]).await.err().unwrap();
        assert_eq!(error.to_string(), "drive1 and copy of drive1 are the same drive");
        let pool = life.open(&drives[1..]).await.unwrap();
        assert_eq!((pool.id(), pool.name().as_str()), (second.id(), "other"));
        pool.close().await.unwrap();
    });
}

#[test]
fn an_erased_pool_leaves_empty_drives() {
    let drives = as_drives(&memory_drives(2, 8));
    let life = Life::new();
    life.run(async {
        let pool = life.create(&drives, &[]).await.unwrap();
        pool.create_volume(volume_spec("data", "raid1", None)).await.unwrap();
        pool.erase().await.unwrap();
        for drive in &drives {
            assert_eq!(inspect(&**drive).await.unwrap(), None);
        }
        assert!(matches!(life.open(&drives).await, Err(PoolError::NoPool { drives }) if drives == ["drive0", "drive1"]));
        assert!(matches!(pool.volume("data"), Err(PoolError::Closed { .. })));
    });
}

/// Another name of a drive.
struct Door {
    info: DriveInfo,
    drive: Rc<dyn Drive>,
}

impl Drive for Door {
    fn info(&self) -> &DriveInfo {
        &self.info
    }

    fn submit(&self, request: IoRequest) -> Completion {
        self.drive.submit(request)
    }
}

#[test]
fn drive_named_by_two_paths_is_refused() {
    let life = Life::new();
    life.run(async {
        for at in 0..3 {
            let drives = as_drives(&memory_drives(3, 16));
            let info = DriveInfo { label: "another door".into(), ..drives[at].info().clone() };
            let mut named = drives.clone();
            named.push(Rc::new(Door { info, drive: drives[at].clone() }));
            let error = life.create(&named, &[]).await.err().expect("refused").to_string();
            assert!(error.contains("another door") && error.contains(&format!("drive{at}")), "{error}");
            // Nothing of it stays.
            life.create(&drives, &[]).await.expect("made").close().await.expect("closed");
        }
    });
}

#[test]
fn invalid_requests_are_refused_with_a_reason() {
    let drives = as_drives(&memory_drives(4, 16));
    let life = Life::new();
    life.run(async {
        for (name, part) in
            [("", "empty"), ("a/b", "'/'"), ("-a", "begin"), ("a b", "' '"), (&"x".repeat(64), "64")]
        {
            let error =
                Pool::create(&life.context, &life.buffers, spec(name, &drives, &[])).await.err().unwrap();
            assert!(error.to_string().contains(part), "{error}");
            assert!(matches!(error, PoolError::BadName { what: "pool", .. }));
        }
        assert!(matches!(life.create(&[], &[]).await, Err(PoolError::NoDrives)));
        let twice = [drives[0].clone(), drives[1].clone(), drives[0].clone()];
        assert!(matches!(life.create(&twice, &[]).await, Err(PoolError::SameDriveTwice { .. })));
        assert!(matches!(life.create(&drives, &drives[3..]).await, Err(PoolError::SameDriveTwice { .. })));
        let tiny: Vec<Rc<dyn Drive>> = vec![MemoryDrive::new("tiny", 3 * MIB)];
        let error = life.create(&tiny, &[]).await.err().unwrap();
        assert_eq!(error.to_string(), "tiny is too small: it has 3145728 bytes, 4194304 are needed");
        let wide = PoolSpec { slab_bytes: Some(8 * MIB), ..spec("wide", &drives, &[]) };
        let error = Pool::create(&life.context, &life.buffers, wide.clone()).await.map(|_| ());
        assert!(error.is_ok(), "a slab of 8 MiB fits: {error:?}");
        for (slab_bytes, part) in
            [(16 * MIB, "too small"), (3 * MIB, "power of two"), (256 * MIB, "power of two")]
        {
            let spec = PoolSpec { slab_bytes: Some(slab_bytes), force: true, ..wide.clone() };
            let error = Pool::create(&life.context, &life.buffers, spec).await.err().unwrap();
            assert!(error.to_string().contains(part), "{error}");
        }

        let forced = PoolSpec { force: true, ..spec("tank", &drives, &[]) };
        let pool = Pool::create(&life.context, &life.buffers, forced).await.unwrap();
        for (layout, part) in [("raid7", "at least 5"), ("raid60", "at least")] {
            let error = pool.create_volume(volume_spec("v", layout, None)).await.err().unwrap();
            assert!(matches!(error, PoolError::Layout(_)) && error.to_string().contains(part), "{error}");
        }
        let mut odd = volume_spec("v", "raid5", None);
        odd.layout.interleave_bytes = Some(65_000);
        assert!(matches!(pool.create_volume(odd).await, Err(PoolError::Layout(_))));
        let error = pool.create_volume(volume_spec("v", "raid0", Some(60 * MIB))).await.err().unwrap();
        let PoolError::NoSpace { needed_rows, free_rows, width, possible_bytes, .. } = error else {
            panic!("{error}")
        };
        assert_eq!((needed_rows, free_rows, width, possible_bytes), (15, 10, 4, 40 * MIB));
        assert!(matches!(
            pool.create_volume(volume_spec("v", "raid0", Some(1 << 50))).await,
            Err(PoolError::NoSpace { .. })
        ));
        assert!(matches!(
            pool.create_volume(volume_spec("v", "raid0", Some(u64::MAX))).await,
            Err(PoolError::BadSetting(_))
        ));
        assert!(matches!(
            pool.create_volume(volume_spec("v", "raid0", Some(0))).await,
            Err(PoolError::BadSetting(_))
        ));
        assert!(matches!(
            pool.create_volume(volume_spec("v/w", "raid0", None)).await,
            Err(PoolError::BadName { what: "volume", .. })
        ));
        pool.create_volume(volume_spec("v", "raid0", Some(MIB))).await.unwrap();
        assert!(matches!(
            pool.create_volume(volume_spec("v", "raid0", Some(MIB))).await,
            Err(PoolError::VolumeExists { .. })
        ));
        let error = pool.volume("w").err().unwrap();
        assert!(matches!(&error, PoolError::NoSuchVolume { known, .. } if *known == ["v"]), "{error}");
        assert!(matches!(pool.delete_volume("w").await, Err(PoolError::NoSuchVolume { .. })));
        assert!(matches!(pool.set_rebuild_priority(0).await, Err(PoolError::BadSetting(_))));
        assert_eq!(pool.volumes().len(), 1, "nothing of what was refused is left");
        pool.close().await.unwrap();
        assert!(matches!(
            pool.create_volume(volume_spec("x", "raid0", None)).await,
            Err(PoolError::Closed { .. })
        ));
    });
}

#[test]
fn unequal_drives_are_used_to_the_full() {
    let mut drives = as_drives(&memory_drives(2, 64));
    drives.push(MemoryDrive::new("short", 32 * MIB + 4096));
    drives.push(MemoryDrive::new("shorter", 32 * MIB));
    let life = Life::new();
    life.run(async {
        let pool = life.create(&drives, &[]).await.unwrap();
        assert_eq!(pool.notices(), Vec::<String>::new());
        let status = pool.status();
        assert_eq!(status.capacity_bytes, (2 * 61 + 2 * 29) * MIB);
        let mut narrow = volume_spec("data", "raid1", None);
        narrow.layout.columns = Some(2);
        let volume = pool.create_volume(narrow).await.unwrap();
        let status = pool.status();
        assert!(status.allocated_bytes + 2 * MIB >= status.capacity_bytes, "{status:#?}");
        assert!(volume.capacity_bytes() >= 86 * MIB, "{}", volume.capacity_bytes());
        fill(&volume, 1, 0, volume.capacity_bytes()).await;
        pool.close().await.unwrap();
        let pool = life.open(&drives).await.unwrap();
        let volume = pool.volume("data").unwrap();
        holds(&volume, 1, 0, volume.capacity_bytes()).await.unwrap();
        pool.close().await.unwrap();
    });
}

#[test]
fn volumes_share_the_drives_and_give_their_space_back() {
    let drives = as_drives(&memory_drives(4, 32));
    let life = Life::new();
    life.run(async {
        let pool = life.create(&drives, &[]).await.unwrap();
        let first = pool.create_volume(volume_spec("first", "raid10", Some(8 * MIB))).await.unwrap();
        let second = pool.create_volume(volume_spec("second", "raid6", Some(10 * MIB))).await.unwrap();
        fill(&first, 1, 0, 8 * MIB).await;
        fill(&second, 2, 0, 10 * MIB).await;
        full_volume(&pool, volume_spec("rest", "raid0", None), 3).await;
        assert!(matches!(
            pool.create_volume(volume_spec("more", "raid0", None)).await,
            Err(PoolError::NoSpace { .. })
        ));
        let status = pool.status();
        assert!(status.allocated_bytes + 4 * MIB > status.capacity_bytes, "{status:#?}");

        pool.delete_volume("second").await.unwrap();
        assert!(second.read(0, 4096).await.is_err());
        assert!(second.write(0, pool.buffers().allocate_zeroed(4096), false).await.is_err());
        let freed = pool.status();
        assert!(freed.allocated_bytes < status.allocated_bytes);
        let mirror = volume_spec("mirror", "raid10", Some(10 * MIB));
        let mirror = pool.create_volume(mirror).await.unwrap();
        assert_eq!(mirror.read(0, 4096).await.unwrap().to_vec(), vec![0; 4096], "nothing shows through");
        fill(&mirror, 4, 0, 10 * MIB).await;
        pool.close().await.unwrap();

        let pool = life.open(&drives).await.unwrap();
        let names: Vec<String> = pool.volumes().into_iter().map(|volume| volume.name).collect();
        assert_eq!(names, ["first", "rest", "mirror"]);
        holds(&pool.volume("first").unwrap(), 1, 0, 8 * MIB).await.unwrap();
        let rest = pool.volume("rest").unwrap();
        holds(&rest, 3, 0, rest.capacity_bytes()).await.unwrap();
        holds(&pool.volume("mirror").unwrap(), 4, 0, 10 * MIB).await.unwrap();
        pool.close().await.unwrap();
    });
}

#[test]
fn narrow_volumes_spread_over_the_drives() {
    let drives = as_drives(&memory_drives(4, 24));
    let life = Life::new();
    life.run(async {
        let pool = life.create(&drives, &[]).await.unwrap();
        let mut narrow = volume_spec("a", "raid1", Some(4 * MIB));
        narrow.layout.columns = Some(2);
        pool.create_volume(narrow.clone()).await.unwrap();
        narrow.name = "b".to_owned();
        pool.create_volume(narrow).await.unwrap();
        let mut single = volume_spec("c", "single", Some(4 * MIB));
        single.layout.columns = Some(1);
        pool.create_volume(single).await.unwrap();
        let volumes = pool.volumes();
        for volume in &volumes[..2] {
            let bytes: Vec<u64> = volume.slots.iter().map(|slot| slot.bytes).collect();
            assert_eq!((bytes.len(), bytes.iter().sum::<u64>()), (4, 8 * MIB), "all drives share: {bytes:?}");
        }
        assert_eq!(volumes[2].slots.iter().map(|slot| slot.bytes).sum::<u64>(), 4 * MIB);
        pool.close().await.unwrap();
    });
}

#[test]
fn opened_for_reading_nothing_is_written() {
    let images = memory_drives(4, 24);
    let drives = as_drives(&images);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&drives[..3], &drives[3..]).await.unwrap();
        let spec = VolumeSpec { checksums: Some(false), ..volume_spec("data", "mirror3", None) };
        let volume = full_volume(&pool, spec, 1).await;
        volume.flush().await.unwrap();
        // Left without closing: write-intent bits are set, so a writer would have things to do.
        fill(&volume, 1, 0, MIB).await;
    });
    drop(life);
    // All drives, and without one: even then nothing may be recorded, and no spare may be
    // activated.
    for present in [vec![0, 1, 2, 3], vec![1, 2, 3], vec![3, 0, 2]] {
        let images: Vec<_> = images.iter().map(|drive| drive.duplicate(&drive.info().label)).collect();
        let before: Vec<_> = images.iter().map(|drive| image(drive)).collect();
        let drives: Vec<Rc<dyn Drive>> =
            present.iter().map(|&index| images[index].clone() as Rc<dyn Drive>).collect();
        let life = Life::new();
        life.run(async {
            let pool = life.open_as(&drives, OpenMode::ReadOnly).await.unwrap();
            pool.start_jobs();
            let volume = pool.volume("data").unwrap();
            holds(&volume, 1, 0, volume.capacity_bytes()).await.unwrap();
            let zeroes = pool.buffers().allocate_zeroed(4096);
            assert!(volume.write(0, zeroes.clone(), true).await.is_err());
            assert!(volume.write_zeroes(0, MIB).await.is_err());
            assert!(volume.discard(0, 8 * MIB).await.is_err());
            volume.flush().await.unwrap();
            let state = if present.len() == 4 { PoolState::Online } else { PoolState::Degraded };
            assert_eq!(pool.status().state, state);
            let spec = volume_spec("more", "raid5", None);
            assert!(matches!(pool.create_volume(spec).await, Err(PoolError::ReadOnly { .. })));
            assert!(matches!(pool.delete_volume("data").await, Err(PoolError::ReadOnly { .. })));
            assert!(matches!(pool.scrub().await, Err(PoolError::ReadOnly { .. })));
            assert!(matches!(pool.destroy().await, Err(PoolError::ReadOnly { .. })));
            life.context.sleep_ns(60_000_000_000).await;
            pool.close().await.unwrap();
        });
        let after: Vec<_> = images.iter().map(|drive| image(drive)).collect();
        assert!(before == after, "drives {present:?}");
    }
}

#[test]
fn newer_formats_are_refused_by_version() {
    let images = memory_drives(2, 8);
    let drives = as_drives(&images);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&drives, &[]).await.unwrap();
        pool.close().await.unwrap();
        // The first commit is in slot A.
        let slot = 0;
        for (at, value, is_right) in [
            (
                8,
                3u32,
                (|error: &PoolError| matches!(error, PoolError::NewerFormat { version: 3, known: 2, .. }))
                    as fn(&PoolError) -> bool,
            ),
            (16, 1 << 31, |error| matches!(error, PoolError::UnknownFeatures { flags: 0x8000_0000, .. })),
        ] {
            let image = images[1].duplicate("newer");
            let mut header = [0; 512];
            image.peek(slot, &mut header);
            header[at..at + 4].copy_from_slice(&value.to_le_bytes());
            let checksum = crc_fast::checksum(CRC, &header[..508]) as u32;
            header[508..].copy_from_slice(&checksum.to_le_bytes());
            image.poke(slot, &header);
            let error = life.open(&[drives[0].clone(), image.clone()]).await.err().unwrap();
            assert!(is_right(&error), "{error}");
            assert!(inspect(&*image).await.is_err());
            let error = life.create(&[image], &[]).await.err().unwrap();
            assert!(is_right(&error), "{error}");
        }
    });
}

#[test]
fn status_of_a_new_pool_adds_up() {
    let drives = as_drives(&memory_drives(3, 16));
    let life = Life::new();
    life.run(async {
        let pool = life.create(&drives[..2], &drives[2..]).await.unwrap();
        pool.create_volume(volume_spec("data", "raid1", None)).await.unwrap();
        let status = pool.status();
        assert_eq!((&*status.name, status.state), ("tank", PoolState::Online));
        assert_eq!((status.capacity_bytes, status.allocated_bytes), (26 * MIB, 26 * MIB));
        assert_eq!((status.metadata_bytes, status.map_bytes), (9 * MIB, 2 * MIB));
        assert_eq!((status.journal_bytes, status.slab_bytes), (4 * MIB, MIB));
        assert_eq!((status.activity.len(), &status.condition), (0, &Condition::AllThere));
        let spare = &status.drives[2];
        assert_eq!((&*spare.path, spare.role, spare.state), ("drive2", Role::Spare, DriveState::Online));
        assert_eq!((spare.read_errors, spare.write_errors, spare.checksum_errors), (0, 0, 0));
        assert_eq!(status.volumes[0].shape.level, Level::Raid1);
        assert_eq!(pool.volumes()[0].state, VolumeState::Online);
        pool.close().await.unwrap();
    });
}

#[test]
fn drives_of_an_older_format_are_identified() {
    // The head of a slot as version 1 wrote it.
    let image = MemoryDrive::new("old", 8 * MIB);
    let mut header = [0u8; 512];
    header[..8].copy_from_slice(b"STRPWISE");
    header[8..12].copy_from_slice(&1u32.to_le_bytes());
    let checksum = crc_fast::checksum(CRC, &header[..508]) as u32;
    header[508..].copy_from_slice(&checksum.to_le_bytes());
    image.poke(0, &header);
    let life = Life::new();
    life.run(async {
        let drives: Vec<Rc<dyn Drive>> = vec![image.clone()];
        for error in [
            life.open(&drives).await.map(|_| ()).unwrap_err(),
            life.create(&drives, &[]).await.map(|_| ()).unwrap_err(),
            inspect(&*image).await.map(|_| ()).unwrap_err(),
        ] {
            assert!(matches!(error, PoolError::OlderFormat { version: 1, .. }), "{error}");
            assert!(error.to_string().contains("version 1"));
        }
        let forced = PoolSpec { force: true, ..spec("tank", &drives, &[]) };
        let pool = Pool::create(&life.context, &life.buffers, forced).await.unwrap();
        pool.close().await.unwrap();
        assert_eq!(life.open(&drives).await.unwrap().name(), "tank");
    });
}

#[test]
fn events_record_the_history() {
    let drives = as_drives(&memory_drives(3, 24));
    let life = Life::new();
    life.run(async {
        let pool = life.create(&drives, &[]).await.unwrap();
        pool.create_volume(volume_spec("data", "raid5", Some(2 * MIB))).await.unwrap();
        pool.resize_volume("data", 4 * MIB).await.unwrap();
        life.context.sleep_ns(5_000_000_000).await;
        pool.fail_drive(id_of(&pool.status(), "drive1"), "a test").await.unwrap();
        pool.delete_volume("data").await.unwrap();
        pool.close().await.unwrap();
        let options = PoolOptions { unix_ms: Some(|| 77), ..options(3) };
        let drives = vec![drives[0].clone(), drives[2].clone()];
        let pool =
            Pool::open(&life.context, &life.buffers, drives, OpenMode::ReadWrite, options).await.unwrap();
        let events = pool.events();
        let texts: Vec<&str> = events.iter().map(|event| event.text.as_str()).collect();
        let expected = [
            (EventKind::Pool, "pool tank was made"),
            (EventKind::Volume, "volume data was created"),
            (EventKind::Volume, "volume data was resized from 2097152 to 4194304 bytes"),
            (EventKind::Drive, "drive1 is out of service: a test"),
            (EventKind::Volume, "volume data was deleted"),
        ];
        assert_eq!(texts, expected.map(|(_, text)| text));
        assert!(events.iter().zip(expected).all(|(event, (kind, _))| event.kind == kind));
        assert_eq!(events[3].time_unix_ms - events[2].time_unix_ms, 5000);
        pool.close().await.unwrap();
    });
}

#[test]
fn enough_journal_drives_take_the_journals() {
    let drives = as_drives(&memory_drives(6, 24));
    let life = Life::new();
    life.run(async {
        for (own, is_enough) in [(2, true), (1, false)] {
            let spec = PoolSpec {
                journals: drives[3..3 + own].to_vec(),
                fast: drives[5..].to_vec(),
                force: true,
                ..spec("tank", &drives[..3], &[])
            };
            let pool = Pool::create(&life.context, &life.buffers, spec).await.unwrap();
            full_volume(&pool, volume_spec("data", "raid5", Some(4 * MIB)), 1).await;
            let status = pool.status();
            let on_own: u64 = status
                .drives
                .iter()
                .filter(|drive| drive.role == Role::Journal)
                .map(|drive| drive.allocated_bytes)
                .sum();
            assert_eq!(on_own > 0, is_enough, "{status:#?}");
            assert!(status.journal_bytes >= 2 * MIB);
            assert_eq!(pool.notices().iter().any(|notice| notice.contains("journal")), !is_enough);
            let fast = VolumeSpec { pin: Pin::Fast, ..volume_spec("fast", "single", None) };
            pool.create_volume(fast).await.unwrap();
            let placed = &pool.volumes()[1].slots;
            assert_eq!(
                placed.iter().map(|slot| slot.drive).collect::<Vec<_>>(),
                [id_of(&pool.status(), "drive5")]
            );
            pool.close().await.unwrap();
            let pool = life.open(&[&drives[..3 + own], &drives[5..]].concat()).await.unwrap();
            holds(&pool.volume("data").unwrap(), 1, 0, 4 * MIB).await.unwrap();
            pool.close().await.unwrap();
        }
    });
}
