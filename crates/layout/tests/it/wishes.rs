//! Users' layout requests: the resulting shapes, and the errors.

use stripewise_layout::{Geometry, InterleaveReason, LayoutError, LayoutSpec, Level, Shape};

fn spec(name: &str) -> LayoutSpec {
    LayoutSpec::parse(name).unwrap()
}

fn columns(name: &str, columns: usize) -> LayoutSpec {
    LayoutSpec { columns: Some(columns), ..spec(name) }
}

fn groups(name: &str, groups: usize) -> LayoutSpec {
    LayoutSpec { groups: Some(groups), ..spec(name) }
}

fn interleave(name: &str, bytes: u64) -> LayoutSpec {
    LayoutSpec { interleave_bytes: Some(bytes), ..spec(name) }
}

#[test]
fn unset_layout_options_get_defaults() {
    for (wish, drives, level, width, groups) in [
        (spec("single"), 1, Level::Single, 1, 1),
        (columns("single", 1), 4, Level::Single, 1, 1),
        (spec("simple"), 4, Level::Raid0, 4, 1),
        (spec("raid0"), 2, Level::Raid0, 2, 1),
        (spec("single"), 4, Level::Single, 1, 1),
        (spec("single"), 300, Level::Single, 1, 1),
        (spec("mirror"), 2, Level::Raid1, 2, 1),
        (spec("raid1"), 4, Level::Raid1, 2, 1),
        (columns("mirror", 2), 5, Level::Raid1, 2, 1),
        (spec("mirror3"), 3, Level::Raid1, 3, 1),
        (spec("mirror3"), 7, Level::Raid1, 3, 1),
        (spec("MIRROR3"), 3, Level::Raid1, 3, 1),
        (spec("raid4"), 3, Level::Raid4, 3, 1),
        (spec("parity"), 5, Level::Raid5, 5, 1),
        (columns("raidz1", 3), 5, Level::Raid5, 3, 1),
        (spec("dual-parity"), 4, Level::Raid6, 4, 1),
        (spec("raidz2"), 255, Level::Raid6, 255, 1),
        (spec("raidz3"), 5, Level::Raid7, 5, 1),
        (spec("raid10"), 2, Level::Raid10, 2, 1),
        (spec("raid10"), 7, Level::Raid10, 7, 1),
        (spec("raid50"), 6, Level::Raid50, 6, 2),
        (spec("raid50"), 9, Level::Raid50, 9, 3),
        (spec("raid50"), 12, Level::Raid50, 12, 2),
        (groups("raid50", 4), 12, Level::Raid50, 12, 4),
        (spec("raid60"), 8, Level::Raid60, 8, 2),
        (spec("raid60"), 25, Level::Raid60, 25, 5),
        (groups("raid5", 1), 4, Level::Raid5, 4, 1),
        (columns("raid6", 200), 300, Level::Raid6, 200, 1),
    ] {
        let shape = wish.resolve(drives).unwrap_or_else(|error| panic!("{wish:?} on {drives}: {error}"));
        assert_eq!(
            shape,
            Shape { level, width, groups, interleave_bytes: 64 << 10, rotation_rows: 1 },
            "{wish:?}"
        );
        assert_eq!(shape.check(), Ok(()));
    }
    for shift in 12..=20 {
        assert_eq!(interleave("raid5", 1 << shift).resolve(3).unwrap().interleave_bytes, 1 << shift);
    }
}

/// Every refusal, with the words that a user sees.
#[test]
fn impossible_layouts_are_refused_with_a_hint() {
    for (wish, drives, message, hint) in [
        (
            spec("raid5"),
            2,
            "raid5 needs at least 3 drives, 2 were given",
            "2 drives allow raid0, raid1, raid10",
        ),
        (spec("raid5"), 1, "raid5 needs at least 3 drives, 1 was given", "one drive allows only single"),
        (spec("single"), 0, "single needs at least 1 drive, 0 were given", "name at least one drive"),
        (spec("raid0"), 1, "raid0 needs at least 2 drives, 1 was given", "one drive allows only single"),
        (
            spec("raid6"),
            3,
            "raid6 needs at least 4 drives, 3 were given",
            "3 drives allow raid0, raid1, raid4, raid5, raid10",
        ),
        (
            spec("raid7"),
            4,
            "raid7 needs at least 5 drives, 4 were given",
            "4 drives allow raid0, raid1, raid4, raid5, raid6, raid10",
        ),
        (
            spec("raid50"),
            5,
            "raid50 needs at least 6 drives, 5 were given",
            "5 drives allow raid0, raid1, raid4, raid5, raid6, raid7, raid10",
        ),
        (
            spec("raid60"),
            7,
            "raid60 needs at least 8 drives, 7 were given",
            "7 drives allow raid0, raid1, raid4, raid5, raid6, raid7, raid10",
        ),
        (
            spec("raid6"),
            256,
            "raid6 uses at most 255 drives, 256 were given",
            "--columns 255 uses 255 of the drives",
        ),
        (
            columns("raid6", 3),
            6,
            "raid6 needs at least 4 columns, 3 were asked for",
            "give --columns 4 or more",
        ),
        (
            columns("raid1", 1),
            2,
            "raid1 needs at least 2 columns, 1 was asked for",
            "give --columns 2 or more",
        ),
        (
            columns("single", 2),
            4,
            "single has at most 1 column, 2 were asked for",
            "use raid0 to spread the data over several drives, raid1 to keep it on several",
        ),
        (
            columns("raid0", 256),
            300,
            "raid0 has at most 255 columns, 256 were asked for",
            "give --columns 255 or fewer",
        ),
        (
            columns("raid5", 6),
            4,
            "raid5 with 6 columns needs 6 drives, 4 were given",
            "add 2 more drives, or give --columns 4 or fewer",
        ),
        (
            spec("mirror3"),
            2,
            "raid1 with 3 columns needs 3 drives, 2 were given",
            "add 1 more drive, or give --columns 2",
        ),
        (columns("raid5", 3), 2, "raid5 with 3 columns needs 3 drives, 2 were given", "add 1 more drive"),
        (
            groups("raid5", 2),
            6,
            "raid5 has no groups, 2 were asked for",
            "leave --groups out; raid50 and raid60 are the layouts with groups",
        ),
        (
            groups("raid10", 0),
            6,
            "raid10 has no groups, 0 were asked for",
            "leave --groups out; raid50 and raid60 are the layouts with groups",
        ),
        (
            groups("raid50", 1),
            6,
            "raid50 needs at least 2 groups, 1 was asked for",
            "give --groups 2 or more; one group of raid50 is raid5",
        ),
        (
            groups("raid60", 0),
            8,
            "raid60 needs at least 2 groups, 0 were asked for",
            "give --groups 2 or more; one group of raid60 is raid6",
        ),
        (
            groups("raid50", 5),
            12,
            "5 groups do not divide the 12 drives of raid50 equally",
            "12 drives allow --groups 2, 3 or 4",
        ),
        (
            groups("raid60", 4),
            12,
            "4 groups of 12 drives have 3 each, a group of raid60 needs at least 4",
            "12 drives allow --groups 2 or 3",
        ),
        (
            spec("raid50"),
            7,
            "7 drives cannot be divided into equal groups of at least 3 for raid50",
            "--columns 6 --groups 2 uses 6 of them",
        ),
        (
            groups("raid60", 2),
            11,
            "2 groups do not divide the 11 drives of raid60 equally",
            "--columns 10 --groups 2 uses 10 of them",
        ),
        (
            interleave("raid5", 100_000),
            4,
            "an interleave of 100000 bytes is not a power of two",
            "the nearest that work are 64 KiB and 128 KiB",
        ),
        (
            interleave("raid5", 0),
            4,
            "an interleave of 0 bytes is not a power of two",
            "the nearest that works is 4 KiB",
        ),
        (
            interleave("raid5", 3 << 20),
            4,
            "an interleave of 3145728 bytes is not a power of two",
            "the nearest that works is 1 MiB",
        ),
        (
            interleave("raid5", 2048),
            4,
            "an interleave of 2 KiB is outside 4 KiB to 1 MiB",
            "give --interleave a power of two from 4 KiB to 1 MiB",
        ),
        (
            interleave("raid5", 1 << 63),
            4,
            "an interleave of 8589934592 GiB is outside 4 KiB to 1 MiB",
            "give --interleave a power of two from 4 KiB to 1 MiB",
        ),
    ] {
        let error = wish.resolve(drives).expect_err(&format!("{wish:?} on {drives} drives"));
        assert_eq!(error.to_string(), message);
        assert_eq!(error.hint(), hint, "{message}");
    }
}

#[test]
fn unknown_layout_names_list_the_valid_ones() {
    let error = LayoutSpec::parse("raid2").unwrap_err();
    assert_eq!(error.to_string(), "there is no layout \"raid2\"");
    for level in Level::ALL {
        assert!(error.hint().contains(level.name()), "{}", error.hint());
    }
    let error = "mirror3".parse::<Level>().unwrap_err();
    assert_eq!(error.to_string(), "mirror3 is raid1 with 3 columns, not a level of its own");
    assert_eq!(error.hint(), "use raid1 with --columns 3");
}

#[test]
fn every_hint_for_groups_works() {
    for level in [Level::Raid50, Level::Raid60] {
        for width in level.minimum_width()..60 {
            for wanted in 2..width {
                let wish = LayoutSpec { groups: Some(wanted), ..LayoutSpec::new(level) };
                let Err(error) = wish.resolve(width) else { continue };
                let hint = error.hint();
                let flags = numbers_after_flags(&hint);
                assert!(!flags.is_empty(), "{level} on {width}: {error}; hint: {hint}");
                let columns = flags.iter().find(|(flag, _)| *flag == "--columns").map(|(_, number)| *number);
                for (_, groups) in flags.iter().filter(|(flag, _)| *flag == "--groups") {
                    let better = LayoutSpec { columns, groups: Some(*groups), ..wish };
                    assert!(better.resolve(width).is_ok(), "{level} on {width}: {error}; hint: {hint}");
                }
            }
        }
    }
}

/// `--groups 2, 3 or 4` as ("--groups", 2), ("--groups", 3), ("--groups", 4).
fn numbers_after_flags(hint: &str) -> Vec<(&str, usize)> {
    let mut found = Vec::new();
    let mut flag = None;
    for word in hint.split(' ') {
        let word = word.trim_end_matches(',');
        if word.starts_with("--") {
            flag = Some(word);
        } else if let (Some(flag), Ok(number)) = (flag, word.parse()) {
            found.push((flag, number));
        } else if word != "or" {
            flag = None;
        }
    }
    found
}

#[test]
fn members_need_room_for_a_strip_and_an_address() {
    let shape = spec("raid5").resolve(4).unwrap();
    let error = Geometry::new(shape, 65535).unwrap_err();
    assert_eq!(error.to_string(), "members of 65535 bytes have no room for one strip of 64 KiB");
    assert_eq!(error.hint(), "use larger drives or a smaller --interleave");
    assert_eq!(Geometry::new(shape, 65536).unwrap().capacity_bytes(), 3 << 16);
    let error = Geometry::new(shape, 1 << 62).unwrap_err();
    assert_eq!(
        error.to_string(),
        "4 members of 4611686018427387904 bytes exceed what a 64-bit address reaches"
    );
    assert_eq!(error.hint(), "use fewer or smaller drives");
    assert_eq!(Geometry::new(shape, (1 << 62) - (1 << 16)).unwrap().stripes(), (1 << 46) - 1);
}

/// Metadata that holds nonsense is refused, not trusted.
#[test]
fn stored_shapes_are_validated() {
    let good = spec("raid50").resolve(6).unwrap();
    for bad in [
        Shape { width: 0, ..good },
        Shape { width: 7, ..good },
        Shape { width: 256, ..good },
        Shape { width: usize::MAX, ..good },
        Shape { groups: 0, ..good },
        Shape { groups: 1, ..good },
        Shape { groups: 3, ..good },
        Shape { groups: usize::MAX, ..good },
        Shape { interleave_bytes: 0, ..good },
        Shape { interleave_bytes: 12288, ..good },
        Shape { interleave_bytes: 1 << 21, ..good },
        Shape { rotation_rows: 0, ..good },
        Shape { rotation_rows: 3, ..good },
        Shape { rotation_rows: 2048, ..good },
        Shape { level: Level::Raid10, groups: 1, rotation_rows: 2, ..good },
        Shape { level: Level::Raid5, ..good },
        Shape { level: Level::Single, groups: 1, ..good },
    ] {
        assert!(Geometry::new(bad, 1 << 30).is_err(), "{bad:?}");
        // Asking a bad shape for its numbers is harmless.
        let _ = (bad.data_units(), bad.parity_units(), bad.copies(), bad.units(), bad.fault_tolerance());
    }
    assert!(matches!(
        Geometry::new(Shape { groups: 3, ..good }, 1 << 30),
        Err(LayoutError::GroupsTooNarrow { groups: 3, width: 6, needed: 3, .. })
    ));
}

#[test]
fn specs_and_shapes_are_stored_and_read_back() {
    let wish = LayoutSpec { columns: Some(12), groups: Some(3), ..spec("raid60") };
    let json = serde_json::to_string(&wish).unwrap();
    assert_eq!(json, r#"{"level":"raid60","columns":12,"groups":3,"interleave_bytes":null}"#);
    assert_eq!(serde_json::from_str::<LayoutSpec>(&json).unwrap(), wish);
    assert_eq!(serde_json::from_str::<LayoutSpec>(r#"{"level":"raid0"}"#).unwrap(), spec("raid0"));
    let shape = wish.resolve(12).unwrap();
    let json = serde_json::to_string(&shape).unwrap();
    assert_eq!(json, r#"{"level":"raid60","width":12,"groups":3,"interleave_bytes":65536}"#);
    assert_eq!(serde_json::from_str::<Shape>(&json).unwrap(), shape);
    assert!(
        serde_json::from_str::<Shape>(r#"{"level":"raid61","width":1,"groups":1,"interleave_bytes":1}"#)
            .is_err()
    );
}

#[test]
fn levels_have_the_redundancy_they_are_known_for() {
    for (name, drives, data_units, parity_units, copies, tolerance) in [
        ("single", 1, 1, 0, 1, 0),
        ("raid0", 5, 1, 0, 1, 0),
        ("raid1", 2, 1, 0, 2, 1),
        ("mirror3", 3, 1, 0, 3, 2),
        ("raid4", 5, 4, 1, 1, 1),
        ("raid5", 5, 4, 1, 1, 1),
        ("raid6", 6, 4, 2, 1, 2),
        ("raid7", 8, 5, 3, 1, 3),
        ("raid10", 5, 1, 0, 2, 1),
        ("raid50", 10, 4, 1, 1, 1),
        ("raid60", 12, 4, 2, 1, 2),
    ] {
        let shape = spec(name).resolve(drives).unwrap();
        let geometry = Geometry::new(shape, 1 << 30).unwrap();
        let of_shape = (shape.data_units(), shape.parity_units(), shape.copies(), shape.fault_tolerance());
        assert_eq!(of_shape, (data_units, parity_units, copies, tolerance), "{name}");
        let of_geometry =
            (geometry.data_units(), geometry.parity_units(), geometry.copies(), geometry.fault_tolerance());
        assert_eq!(of_geometry, of_shape, "{name}");
        assert_eq!(shape.units(), geometry.stripe(0).units.len());
    }
}

#[test]
fn defaults_suit_the_kind_of_drives() {
    const DISK: u64 = 1 << 20;
    const SSD: u64 = 7 << 10;
    let chosen = |level, position_bytes| {
        let (spec, reason) = LayoutSpec::new(level).on_drives(position_bytes);
        let shape = spec.resolve(level.minimum_width()).expect("a shape");
        (shape.interleave_bytes >> 10, shape.rotation_rows, reason)
    };
    for level in Level::ALL {
        let expected = match level {
            Level::Single | Level::Raid1 => (64, 1, Some(InterleaveReason::Usual)),
            Level::Raid0 | Level::Raid4 | Level::Raid10 => (256, 1, Some(InterleaveReason::Disks)),
            _ => (256, 4, Some(InterleaveReason::Disks)),
        };
        assert_eq!(chosen(level, DISK), expected, "{level:?}");
        for cheap in [0, SSD] {
            assert_eq!(chosen(level, cheap), (64, 1, Some(InterleaveReason::Usual)), "{level:?}");
        }
    }
    let asked = LayoutSpec { interleave_bytes: Some(1 << 20), ..LayoutSpec::new(Level::Raid6) };
    let (spec, reason) = asked.on_drives(DISK);
    assert_eq!((spec.interleave_bytes, spec.rotation_rows, reason), (Some(1 << 20), Some(1), None));
}

/// Reading a stretch in sequence, each drive is asked for long runs, with a step over parity that
/// is as long as [`Shape::rotation_rows`] says.
#[test]
fn slow_parity_rotation_gives_long_sequential_runs() {
    let shape = Shape { rotation_rows: 4, ..spec("raid5").resolve(4).unwrap() };
    let geometry = Geometry::new(shape, 16 << 20).unwrap();
    let on_first = (0..32).map(|stripe| {
        let stripe = geometry.stripe(stripe);
        stripe.units.iter().position(|place| place.member == 0).expect("every member has a unit")
    });
    let is_parity: Vec<bool> = on_first.map(|unit| unit == geometry.data_units()).collect();
    let runs: Vec<usize> = is_parity.chunk_by(|one, other| one == other).map(<[bool]>::len).collect();
    assert_eq!(runs, [12, 4, 12, 4]);
}
