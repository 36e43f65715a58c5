//! Findings of study 004: controllers, ZFS, a NAS and a USB box.

use super::{Check, all, within};
use crate::predict::State;

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("F004-01", |look| {
        let single = look.four("004-single-4tb", "seq_write", State::Normal);
        let of = |name| look.four(name, "seq_write", State::Normal) / single;
        all(&[
            within(of("004-broadcom-raid5"), 2.8, 3.2, "RAID 5"),
            within(of("004-broadcom-raid10"), 1.9, 2.15, "RAID 10"),
        ])
    }),
    ("F004-02", |look| {
        let single = look.four("004-single-4tb", "seq_read", State::Normal);
        let of = |name| look.four(name, "seq_read", State::Normal) / single;
        let (one, other) = (of("004-adaptec-raid5"), of("004-broadcom-raid5"));
        (one > other && other > 2.6, format!("{one:.2} and {other:.2} of one drive"))
    }),
    ("F004-03", |look| {
        let at = |name| look.four(name, "seq_write", State::Normal);
        within(at("004-adaptec-raid5") / at("004-adaptec-raid10"), 1.4, 1.6, "RAID 5 over RAID 10")
    }),
    ("F004-04", |look| {
        let at = |name| look.four(name, "mixed", State::Normal);
        within(at("004-adaptec-raid10") / at("004-adaptec-raid5"), 1.1, 1.6, "RAID 10 over RAID 5")
    }),
    ("F004-07", |look| {
        within(
            look.kept("004-broadcom-raid5", "seq_write", State::Degraded),
            0.95,
            1.05,
            "degraded over normal",
        )
    }),
    ("F004-08", |look| {
        let degraded = look.four("004-broadcom-raid1", "seq_read", State::Degraded);
        within(degraded / look.four("004-single-8tb", "seq_read", State::Normal), 0.95, 1.05, "of one drive")
    }),
    ("F004-09", |look| {
        within(
            look.kept("004-broadcom-raid5", "seq_read", State::Degraded),
            0.35,
            0.6,
            "degraded over normal",
        )
    }),
    ("F004-10", |look| {
        within(
            look.kept("004-adaptec-raid10", "seq_read", State::Degraded),
            0.45,
            0.75,
            "degraded over normal",
        )
    }),
    ("F004-11", |look| {
        within(look.kept("004-adaptec-raid10", "mixed", State::Degraded), 0.6, 0.9, "degraded over normal")
    }),
    ("F004-12", |look| {
        let kept = |load| look.kept("004-adaptec-raid1", load, State::Rebuilding);
        all(&[
            within(kept("seq_write"), 0.5, 0.85, "writes"),
            within(kept("seq_read"), 0.1, 0.3, "reads"),
            within(kept("mixed"), 0.25, 0.5, "mixed"),
        ])
    }),
    ("F004-15", |look| within(look.rebuild_hours("004-broadcom-raid1") / 8.0, 1.0, 1.6, "hours per TB")),
    ("F004-17", |look| within(look.rebuild_hours("004-zfs-raid5"), 2.5, 4.5, "hours for half a drive")),
    ("F004-23", |look| {
        let at = |name| look.four(name, "mixed", State::Normal);
        within(at("004-zfs-raid10") / at("004-zfs-raid5"), 2.0, 4.0, "striped mirror over raid-z1")
    }),
    ("F004-30", |look| {
        let at = |name| look.four(name, "seq_read", State::Normal);
        let rates = [at("004-icybox-raid5"), at("004-icybox-raid10"), at("004-icybox-raid1")];
        all(&rates.map(|rate| within(rate, 200.0, 245.0, "MB/s")))
    }),
    ("F004-31", |look| {
        within(
            look.kept("004-icybox-raid10", "seq_write", State::Degraded),
            0.95,
            1.05,
            "degraded over normal",
        )
    }),
    ("F004-32", |look| {
        let at = |name| look.four(name, "mixed", State::Normal);
        let (one, ten, five) = (at("004-icybox-raid1"), at("004-icybox-raid10"), at("004-icybox-raid5"));
        (one > ten && ten > five, format!("{one:.1}, {ten:.1}, {five:.1} MB/s"))
    }),
    ("F004-05", |look| {
        let single = look.four("004-single-4tb", "mixed", State::Normal);
        let of = |name| look.four(name, "mixed", State::Normal) / single;
        all(&[
            within(of("004-adaptec-raid5"), 1.3, 1.7, "RAID 5"),
            within(of("004-adaptec-raid10"), 1.8, 2.3, "RAID 10"),
        ])
    }),
    ("F004-16", |look| {
        let of = |name, tb| look.rebuild_hours(name) / tb;
        all(&[
            within(of("004-qnap-raid5", 4.0), 1.45, 1.75, "NAS, hours per TB"),
            within(of("004-icybox-raid5", 4.0), 1.45, 1.75, "USB box, hours per TB"),
        ])
    }),
    ("F004-18", |look| {
        let rate = |name, tb: f64| tb * 1e6 / (look.rebuild_hours(name) * 3600.0);
        all(&[
            within(rate("004-broadcom-raid5", 4.0), 161.0, 208.0, "MB/s"),
            within(rate("004-broadcom-raid1", 8.0), 161.0, 208.0, "MB/s"),
        ])
    }),
    ("F004-21", |look| {
        let at = |name, load| look.four(name, load, State::Normal);
        let writes = at("004-zfs-raid5", "seq_write") / at("004-zfs-raid10", "seq_write");
        let reads = at("004-zfs-raid5", "seq_read") / at("004-zfs-raid10", "seq_read");
        all(&[within(writes, 0.85, 1.15, "writes"), within(reads, 1.1, 1.5, "reads")])
    }),
    ("F004-22", |look| {
        let of = |layout: &str| {
            let at = |host: &str| look.four(&format!("004-{host}-{layout}"), "mixed", State::Normal);
            at("zfs") / at("adaptec")
        };
        all(&[
            within(of("raid5"), 0.2, 0.35, "raid-z1"),
            within(of("raid10"), 0.4, 0.65, "striped mirror"),
            within(of("raid1"), 0.25, 0.5, "mirror"),
        ])
    }),
    ("F004-24", |look| {
        let single = look.four("004-single-8tb", "seq_write", State::Normal);
        within(look.four("004-zfs-raid1", "seq_write", State::Normal) / single, 1.2, 1.6, "of one drive")
    }),
    ("F004-25", |look| {
        within(look.kept("004-zfs-raid5", "seq_write", State::Degraded), 0.5, 0.7, "degraded over normal")
    }),
    ("F004-26", |look| {
        let kept = |load| look.kept("004-zfs-raid10", load, State::Rebuilding);
        all(&[
            within(kept("seq_write"), 0.65, 0.9, "writes"),
            within(kept("seq_read"), 0.3, 1.0, "reads"),
            within(kept("mixed"), 0.35, 0.75, "mixed"),
        ])
    }),
    ("F004-27", |look| {
        let of = |layout: &str, load| {
            let at = |host: &str| look.four(&format!("004-{host}-{layout}"), load, State::Normal);
            at("qnap") / at("broadcom")
        };
        all(&[
            within(of("raid5", "seq_write"), 0.7, 0.97, "RAID 5 writes"),
            within(of("raid10", "mixed"), 0.25, 0.5, "RAID 10 mixed"),
            within(of("raid1", "mixed"), 0.25, 0.5, "RAID 1 mixed"),
        ])
    }),
];
