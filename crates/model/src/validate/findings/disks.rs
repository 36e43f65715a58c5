//! Findings of study 000: disks under Storage Spaces and a chipset.

use super::{Check, Load, all, rnd, seq, within};

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("F000-01", |look| {
        within(look.ratio("000-rst-raid0", "000-single", seq(true, 16)), 2.8, 3.8, "of one disk")
    }),
    ("F000-02", |look| {
        within(look.ratio("000-ss-simple", "000-single", seq(true, 16)), 0.6, 1.0, "of one disk")
    }),
    ("F000-05", |look| {
        let at = |depth| look.ratio("000-ss-mirror", "000-single", seq(true, depth));
        all(&[within(at(1), 0.6, 1.1, "depth 1"), within(at(16), 1.3, 2.0, "depth 16")])
    }),
    ("F000-07", |look| {
        within(look.ratio("000-rst-raid1", "000-single", seq(false, 16)), 0.6, 1.02, "of one disk")
    }),
    ("F000-10", |look| {
        within(look.ratio("000-rst-raid5", "000-single", seq(false, 1)), 0.0, 0.2, "of one disk")
    }),
    ("F000-11", |look| {
        within(look.ratio("000-rst-raid5", "000-single", seq(true, 1)), 2.0, 3.0, "of one disk")
    }),
    ("F000-12", |look| {
        let at = |depth| look.ratio("000-ss-parity", "000-single", seq(false, depth));
        all(&[within(at(1), 0.35, 0.65, "depth 1"), within(at(16), 0.65, 1.0, "depth 16")])
    }),
    ("F000-14", |look| {
        let sequential = look.ratio("000-ss-parity", "000-rst-raid5", seq(false, 1));
        let random = look.ratio("000-ss-parity", "000-rst-raid5", rnd(false, 1));
        all(&[within(sequential, 2.0, 99.0, "sequential"), within(random, 2.0, 99.0, "random")])
    }),
    ("F000-15", |look| {
        within(look.ratio("000-ss-parity", "000-rst-raid0", rnd(false, 1)), 1.0, 99.0, "of RAID 0")
    }),
    ("F000-17", |look| {
        within(look.ratio("000-rst-raid5", "000-rst-raid0", rnd(true, 32)), 0.9, 1.1, "of RAID 0")
    }),
    ("F000-19", |look| {
        within(look.ratio("000-rst-raid0", "000-rst-raid5", seq(false, 16)), 8.0, 99.0, "of RAID 5")
    }),
    ("F000-21", |look| {
        let at = |mib| look.rate("000-rst-raid0", rnd(true, 1).mib(mib));
        within(at(16) / at(32), 5.0, 99.0, "16 MiB over 32 MiB")
    }),
    ("F000-26", |look| {
        let at = |read| look.rate("000-single", rnd(read, 1));
        within(at(false) / at(true), 1.5, 3.5, "writes over reads")
    }),
    ("F000-27", |look| {
        within(look.ratio("000-rst-raid5", "000-single", rnd(false, 1)), 0.1, 0.35, "of one disk")
    }),
    ("F000-29", |look| {
        within(look.ratio("000-ss-mirror", "000-single", rnd(false, 32)), 0.85, 1.15, "of one disk")
    }),
    ("F000-30", |look| {
        let of = |name| look.ratio(name, "000-single", rnd(true, 32));
        all(&[
            within(of("000-ss-mirror"), 1.6, 2.1, "mirror"),
            within(of("000-rst-raid0"), 3.1, 4.2, "RAID 0"),
        ])
    }),
    ("F000-31", |look| {
        within(look.ratio("000-rst-raid0", "000-single", rnd(true, 1)), 1.8, 3.0, "of one disk")
    }),
    ("F000-03", |look| {
        let of = |load| look.ratio("000-ss-simple", "000-single", load);
        all(&[
            within(of(rnd(false, 1)), 1.6, 2.6, "writes at depth 1"),
            within(of(rnd(true, 32)), 1.6, 2.6, "reads at depth 32"),
        ])
    }),
    ("F000-04", |look| {
        let parity = look.ratio("000-ss-parity", "000-rst-raid0", rnd(false, 1));
        let mirror = look.ratio("000-rst-raid1", "000-rst-raid0", rnd(true, 1));
        all(&[
            within(parity, 1.05, 99.0, "random writes of parity over RAID 0"),
            within(mirror, 1.05, 99.0, "random reads of RAID 1 over RAID 0"),
        ])
    }),
    ("F000-06", |look| {
        let at = |mib| look.ratio("000-rst-raid1", "000-single", seq(true, 16).mib(mib));
        all(&[within(at(16), 1.3, 2.0, "16 MiB"), within(at(4096), 0.8, 1.15, "4 GiB")])
    }),
    ("F000-08", |look| {
        let of = |load| look.ratio("000-ss-mirror", "000-rst-raid1", load);
        all(&[
            within(of(seq(false, 1)), 0.75, 1.25, "sequential"),
            within(of(rnd(false, 32)), 0.75, 1.25, "random"),
        ])
    }),
    ("F000-09", |look| {
        let at = |load| look.ratio("000-rst-raid1", "000-ss-mirror", load);
        all(&[
            within(at(rnd(true, 1).mib(16)), 10.0, 99.0, "16 MiB"),
            within(at(rnd(true, 1)), 1.8, 3.5, "4 GiB, depth 1"),
            within(at(rnd(true, 32)), 0.7, 1.4, "4 GiB, depth 32"),
        ])
    }),
    ("F000-13", |look| {
        let at = |depth, mib| look.ratio("000-ss-parity", "000-single", seq(true, depth).mib(mib));
        all(&[within(at(1, 4096), 1.5, 1.95, "4 GiB"), within(at(1, 16), 0.6, 1.1, "16 MiB")])
    }),
    ("F000-16", |look| {
        let of = |load| look.ratio("000-rst-raid5", "000-ss-parity", load);
        let reads = [seq(true, 1), seq(true, 16), rnd(true, 1), seq(true, 1).mib(16)].map(of);
        let writes = [seq(false, 1), seq(false, 16), rnd(false, 1), rnd(false, 32)].map(of);
        let least = reads.into_iter().fold(f64::MAX, f64::min);
        let most = writes.into_iter().fold(0.0, f64::max);
        all(&[within(least, 1.05, 99.0, "least, reads"), within(most, 0.0, 0.95, "most, writes")])
    }),
    ("F000-18", |look| {
        let of = |load| look.ratio("000-rst-raid0", "000-rst-raid5", load);
        all(&[
            within(of(seq(true, 1).mib(16)), 1.2, 1.6, "sequential"),
            within(of(rnd(true, 32).mib(16)), 1.5, 4.0, "random"),
        ])
    }),
    ("F000-20", |look| {
        let of = |load: Load| look.rate("000-rst-raid0", load.mib(16)) / look.rate("000-rst-raid0", load);
        all(&[
            within(of(seq(true, 16)), 2.0, 3.5, "sequential"),
            within(of(rnd(true, 1)), 20.0, 90.0, "random"),
        ])
    }),
    ("F000-22", |look| {
        let of = |name| look.rate(name, rnd(true, 1).mib(16)) / look.rate(name, rnd(true, 1));
        all(&[
            within(of("000-ss-simple"), 1.0, 2.0, "simple"),
            within(of("000-ss-mirror"), 1.0, 2.0, "mirror"),
            within(of("000-ss-parity"), 1.0, 2.0, "parity"),
            within(of("000-rst-raid0"), 10.0, 90.0, "RAID 0"),
        ])
    }),
    ("F000-24", |look| {
        let at = |mib| look.rate("000-rst-raid5", seq(false, 16).mib(mib));
        within(at(1024) / at(4096), 2.0, 4.0, "1 GiB over 4 GiB")
    }),
    ("F000-25", |look| {
        let at = |depth| look.rate("000-single", rnd(true, depth)) * 1e6 / 4096.0;
        all(&[within(at(1), 90.0, 120.0, "depth 1"), within(at(32), 175.0, 260.0, "depth 32")])
    }),
    ("F000-28", |look| {
        within(look.ratio("000-rst-raid5", "000-single", rnd(false, 32)), 0.6, 1.1, "of one disk")
    }),
];
