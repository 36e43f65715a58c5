//! Findings of study 002: solid-state drives behind controllers.

use super::{Check, all, rnd, seq, within};

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("F002-04", |look| {
        let load = rnd(false, 32).kib(8).mib(0);
        within(look.ratio("002-hw0-4", "002-hw5-5", load), 1.4, 2.1, "RAID 0 over RAID 5")
    }),
    ("F002-07", |look| {
        let at = |read| look.rate("002-ssd1", seq(read, 32).mib(0));
        within(at(true) / at(false), 1.15, 1.45, "reads over writes")
    }),
    ("F002-19", |look| {
        let load = rnd(true, 16).kib(8).workers(10).mib(0);
        within(look.ratio("002-hw0-8", "002-ssd1", load) / 8.0, 0.05, 0.2, "of the sum of the drives")
    }),
    ("F002-20", |look| {
        let load = seq(true, 16).kib(256).workers(10).mib(0);
        within(look.ratio("002-hw0-8", "002-ssd1", load) / 8.0, 0.25, 0.45, "of the sum of the drives")
    }),
    ("F002-21", |look| {
        let eight = look.rate("002-hw0-8", rnd(true, 16).kib(8).workers(10).mib(0));
        let four = look.rate("002-hw0-4", rnd(true, 32).kib(8).mib(0));
        within(eight / four, 0.7, 1.05, "eight heavy over four light")
    }),
    ("F002-22", |look| {
        let load = rnd(true, 16).kib(8).workers(10).mib(0);
        let write = rnd(false, 16).kib(8).workers(10).mib(0);
        let read = look.ratio("002-hw5-8", "002-hw0-8", load);
        all(&[
            within(read, 0.9, 1.1, "reads of RAID 5 over RAID 0"),
            within(look.ratio("002-hw5-8", "002-hw0-8", write), 0.4, 0.85, "writes"),
        ])
    }),
    ("F002-28", |look| {
        let at = |read| look.ratio("002-hw5-5", "002-ssd1", rnd(read, 32).mib(0));
        all(&[within(at(true), 0.0, 1.0, "reads"), within(at(false), 0.0, 1.0, "writes")])
    }),
    ("F002-29", |look| {
        let at = |kib| look.ratio("002-hw0-4", "002-ssd1", rnd(true, 32).kib(kib).mib(0));
        all(&[within(at(4), 0.5, 0.95, "4 KiB"), within(at(16), 1.2, 3.0, "16 KiB")])
    }),
    ("F002-32", |look| {
        let at = |name| look.rate(name, rnd(false, 32).kib(8).mib(0));
        let (zero, ten, five) = (at("002-hw0-4"), at("002-hw10-8"), at("002-hw5-5"));
        (zero >= ten && ten > five, format!("{zero:.1}, {ten:.1}, {five:.1} MB/s"))
    }),
    ("F002-34", |look| {
        let large = look.ratio("002-hw5-5", "002-hw10-8", seq(false, 32).mib(0));
        let random = look.ratio("002-hw5-5", "002-hw10-8", rnd(false, 32).kib(256).mib(0));
        all(&[within(large, 1.02, 1.5, "sequential"), within(random, 0.4, 0.95, "random")])
    }),
    ("F002-46", |look| {
        within(look.ratio("002-hw0-4", "002-ssd1", seq(true, 1).mib(0)), 1.6, 2.6, "of one drive")
    }),
    ("F002-51", |look| {
        let reads = look.ratio("002-sw0-jbod", "002-sw0-svol-2", rnd(true, 32).mib(0));
        let writes = look.ratio("002-sw0-jbod", "002-sw0-svol-2", seq(false, 32).kib(256).mib(0));
        all(&[within(reads, 0.85, 1.15, "random reads"), within(writes, 0.4, 0.75, "sequential writes")])
    }),
    ("F002-54", |look| within(look.over_two(2) / look.over_two(1), 1.6, 2.1, "two over one")),
    ("F002-05", |look| {
        let reads = look.ratio("002-ssd1", "002-ehdd", rnd(true, 32).mib(0));
        within(reads, 40.0, 200.0, "random reads")
    }),
    ("F002-06", |look| {
        let at = |kib| {
            look.rate("002-ssd1", rnd(true, 32).kib(kib).mib(0))
                / look.rate("002-ssd1", rnd(false, 32).kib(kib).mib(0))
        };
        all(&[within(at(8), 3.5, 11.5, "8 KiB"), within(at(64), 3.5, 11.5, "64 KiB")])
    }),
    ("F002-08", |look| {
        let cached = look.mean_us("002-ssd1", rnd(false, 1).mib(0));
        let drive = look.system("002-ssd1").drive;
        within(drive.or("program", 0.0) / cached, 2.5, 9.0, "without the cache over with it")
    }),
    ("F002-09", |look| {
        let drive = look.system("002-ssd1").drive;
        let read = drive.or("worst_read", 0.0) * 1000.0 / look.mean_us("002-ssd1", rnd(true, 1).mib(0));
        let write =
            drive.or("worst_write", 0.0) * 1000.0 / look.mean_us("002-ssd1", seq(false, 1).kib(4).mib(0));
        all(&[within(read, 70.0, 250.0, "reads"), within(write, 700.0, 2500.0, "writes")])
    }),
    ("F002-10", |look| {
        let random = look.mean_us("002-ssd1", rnd(true, 1).mib(0));
        within(
            random / look.mean_us("002-ssd1", seq(true, 1).kib(4).mib(0)),
            2.2,
            4.2,
            "random over sequential",
        )
    }),
    ("F002-16", |look| {
        let iops = |read| look.rate("002-hw0-2", rnd(read, 32).mib(0)) * 1e6 / 4096.0;
        all(&[
            within(iops(true) / 35_000.0, 0.6, 0.8, "reads of the data sheet"),
            within(iops(false) / 3300.0, 0.5, 0.8, "writes of the data sheet"),
        ])
    }),
    ("F002-17", |look| {
        within(look.mean_us("002-hw0-2", rnd(true, 1).mib(0)) / 75.0, 4.0, 6.0, "reads of the data sheet")
    }),
    ("F002-18", |look| {
        within(look.rate("002-hw0-2", seq(false, 32).mib(0)) / 120.0, 3.0, 6.0, "of one drive's data sheet")
    }),
    ("F002-27", |look| within(look.rate("002-hw0-4", seq(true, 32).mib(0)) / 2000.0, 0.3, 0.5, "of the bus")),
    ("F002-30", |look| {
        let at = |name, kib| {
            let load = |read| rnd(read, 16).kib(kib).workers(10).mib(0);
            look.rate(name, load(true)) / look.rate(name, load(false))
        };
        let (zero, five, ten) = (at("002-hw0-8", 8), at("002-hw5-8", 8), at("002-hw10-8", 8));
        let larger = at("002-hw5-8", 256) > five && at("002-hw0-8", 256) > zero;
        (zero < ten && ten < five && larger, format!("8 KiB: {zero:.1}, {ten:.1}, {five:.1}"))
    }),
    ("F002-31", |look| {
        let at = |name, kib| {
            let load = |read| rnd(read, 32).kib(kib).mib(0);
            look.rate(name, load(true)) / look.rate(name, load(false))
        };
        let (array, single) = (at("002-hw5-5", 16), at("002-ssd1", 16));
        (array > single, format!("16 KiB: {array:.1} and {single:.1}"))
    }),
    ("F002-33", |look| {
        let at = |name, read| look.rate(name, seq(read, 32).kib(512).mib(0));
        let (zero, five, ten) = (at("002-hw0-4", false), at("002-hw5-5", false), at("002-hw10-8", false));
        let reads = within(at("002-hw5-5", true), 640.0, 700.0, "reads in MB/s");
        all(&[reads, (zero > five && five > ten, format!("writes: {zero:.0}, {five:.0}, {ten:.0} MB/s"))])
    }),
    ("F002-35", |look| {
        let at = |read, ssd, hdd| look.ratio(ssd, hdd, rnd(read, 16).kib(8).workers(10).mib(0));
        all(&[
            within(at(true, "002-hw0-4", "002-hdd-raid0"), 8.0, 25.0, "reads"),
            within(at(false, "002-hw0-4", "002-hdd-raid0"), 2.5, 10.0, "writes"),
        ])
    }),
    ("F002-41", |look| {
        let of = |name| look.mean_us(name, rnd(false, 1).mib(0)) / look.mean_us(name, rnd(true, 1).mib(0));
        all(&[
            within(of("002-hw0-4"), 0.0, 0.95, "RAID 0"),
            within(of("002-hw10-8"), 0.0, 0.95, "RAID 10"),
            within(of("002-hw5-5"), 1.0, 2.0, "RAID 5"),
        ])
    }),
    ("F002-42", |look| {
        let load = |read| rnd(read, 1).kib(128).mib(0);
        let of = |name| look.mean_us(name, load(false)) / look.mean_us(name, load(true));
        all(&[within(of("002-hw0-4"), 1.0, 3.0, "RAID 0"), within(of("002-hw5-5"), 1.0, 3.0, "RAID 5")])
    }),
    ("F002-43", |look| {
        let single = look.mean_us("002-ssd1", rnd(true, 1).mib(0));
        let added = |name| (look.mean_us(name, rnd(true, 1).mib(0)) - single) / 1000.0;
        all(&[
            within(added("002-hw0-4"), 0.17, 0.23, "RAID 0, ms"),
            within(added("002-hw10-8"), 0.11, 0.15, "RAID 10, ms"),
        ])
    }),
    ("F002-44", |look| {
        let single = look.mean_us("002-ssd1", seq(true, 1).kib(8).mib(0));
        let added = |name| (look.mean_us(name, seq(true, 1).kib(8).mib(0)) - single) / 1000.0;
        all(&[
            within(added("002-hw0-4"), 0.15, 0.22, "RAID 0, ms"),
            within(added("002-hw10-8"), 0.1, 0.15, "RAID 10, ms"),
        ])
    }),
    ("F002-45", |look| {
        let of = |name| {
            look.mean_us(name, seq(false, 1).kib(8).mib(0)) / look.mean_us(name, seq(true, 1).kib(8).mib(0))
        };
        all(&[within(of("002-hw0-4"), 0.0, 0.95, "RAID 0"), within(of("002-ssd1"), 1.0, 1.5, "one drive")])
    }),
    ("F002-49", |look| {
        let of = |read| look.ratio("002-hw0-fs", "002-hw0-2", rnd(read, 32).mib(0));
        all(&[within(of(true), 0.95, 1.1, "reads"), within(of(false), 1.2, 1.6, "writes")])
    }),
    ("F002-50", |look| {
        let at = |name| look.rate(name, rnd(true, 32).mib(0));
        let (simple, plain) = (at("002-sw0-svol-2"), at("002-sw0-A"));
        (simple > at("002-hw0-2") && simple > plain, format!("{simple:.0} MB/s of 4 KiB reads"))
    }),
    ("F002-52", |look| {
        let reads = look.ratio("002-sw0-A", "002-hw0-2", rnd(true, 32).mib(0));
        let writes = look.ratio("002-sw0-A", "002-hw0-2", seq(false, 32).mib(0));
        all(&[within(reads, 0.35, 0.65, "random reads"), within(writes, 1.0, 1.4, "sequential writes")])
    }),
    ("F002-53", |look| {
        let of = |read| look.ratio("002-sw0-svol-4", "002-hw0-4", rnd(read, 32).mib(0));
        all(&[within(of(true), 1.05, 1.3, "random reads"), within(of(false), 1.1, 1.8, "random writes")])
    }),
    ("F002-55", |look| {
        let of = |read| look.ratio("002-sw0-2x2-svol", "002-hw0-4", seq(read, 32).kib(512).mib(0));
        all(&[within(of(true), 1.3, 2.0, "reads"), within(of(false), 1.4, 2.1, "writes")])
    }),
    ("F002-56", |look| {
        let of = |read| {
            let load = rnd(read, 1).mib(0);
            look.mean_us("002-sw0-2x2-svol", load) / look.mean_us("002-hw0-4", load)
        };
        all(&[within(of(true), 0.65, 0.9, "reads"), within(of(false), 0.4, 0.75, "writes")])
    }),
    ("F002-57", |look| {
        let of = |load| look.ratio("002-sw0-2x2-hw0", "002-sw0-2x2-svol", load);
        all(&[
            within(of(seq(false, 32).kib(512).mib(0)), 1.02, 1.4, "sequential writes"),
            within(of(rnd(true, 32).mib(0)), 0.7, 0.98, "random reads"),
        ])
    }),
];
