//! Findings of study 001: an enclosure and its host.

use super::{Check, all, within};
use crate::predict::{Bonnie, PostMark};

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("F001-01", |look| {
        let of = |name| Bonnie::on(&look.system(name));
        let (zero, five, ten) = (of("001-raid0"), of("001-raid5"), of("001-raid10"));
        let leads = |get: fn(&Bonnie) -> f64| get(&zero) >= get(&five) && get(&zero) >= get(&ten);
        let holds = leads(|one| one.write) && leads(|one| one.rewrite) && leads(|one| one.read);
        (holds, format!("RAID 0 writes {:.0} and reads {:.0} kB/s", zero.write, zero.read))
    }),
    ("F001-02", |look| {
        let of = |name| Bonnie::on(&look.system(name));
        let (zero, five) = (of("001-raid0"), of("001-raid5"));
        let (write, rewrite) = (five.write / zero.write, five.rewrite / zero.rewrite);
        all(&[within(write, 0.65, 0.85, "write"), within(rewrite, 0.35, 0.6, "rewrite")])
    }),
    ("F001-03", |look| {
        let of = |name| Bonnie::on(&look.system(name));
        let (five, fifty) = (of("001-raid5"), of("001-raid50"));
        let (rewrite, write) = (fifty.rewrite / five.rewrite, fifty.write / five.write);
        all(&[within(rewrite, 1.4, 2.1, "rewrite"), within(write, 0.95, 1.15, "write")])
    }),
    ("F001-04", |look| {
        let of = |name| Bonnie::on(&look.system(name));
        let (zero, ten) = (of("001-raid0"), of("001-raid10"));
        let (write, read) = (ten.write / zero.write, ten.read / zero.read);
        all(&[within(write, 0.75, 0.95, "write"), within(read, 0.5, 0.8, "read")])
    }),
    ("F001-06", |look| {
        let cpu =
            ["001-raid0", "001-raid5", "001-raid10"].map(|name| Bonnie::on(&look.system(name)).putc_cpu);
        within(
            cpu.into_iter().fold(f64::MAX, f64::min),
            85.0,
            100.0,
            "least share of the processor in percent",
        )
    }),
    ("F001-09", |look| {
        let read = Bonnie::on(&look.system("001-raid0")).read * 1024.0 / 320e6;
        within(read, 0.95, 1.0, "of the bus")
    }),
    ("F001-13", |look| {
        let of = |name| PostMark::on(&look.system(name), 5000.0, 5000.0, 500.0, 1e7);
        let runs = ["001-raid0", "001-raid5", "001-raid10", "001-raid50"].map(of);
        let spread = |get: fn(&PostMark) -> f64| {
            let rates = runs.map(|run| get(&run));
            rates.into_iter().fold(0.0, f64::max) / rates.into_iter().fold(f64::MAX, f64::min)
        };
        all(&[
            within(spread(|run| run.created_alone_rate), 2.0, 3.2, "creations"),
            within(spread(|run| run.deleted_alone_rate), 1.0, 1.4, "deletions"),
        ])
    }),
    ("F001-14", |look| {
        let of = |name| PostMark::on(&look.system(name), 5000.0, 5000.0, 500.0, 1e7);
        let (one, other) = (of("001-raid0"), of("001-raid5"));
        let same = one.created == other.created && one.data_read_mb == other.data_read_mb;
        (same && one.total_seconds < other.total_seconds, format!("{} files on both", one.created))
    }),
];
