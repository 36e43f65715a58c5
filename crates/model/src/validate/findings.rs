//! The studies' findings that a prediction can show: each holds, does not hold, or cannot be modelled and why.

use serde::Serialize;

use crate::predict::{Bonnie, State, Workload, predict};
use crate::system::{Catalogue, Configuration, Over, System};

/// Whether the predictions show a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// They do.
    Holds,
    /// They show something else.
    DoesNotHold,
    /// They say nothing about it.
    CannotBeModelled,
}

/// A finding and what the predictions say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Its id in `studies/findings.csv`.
    pub id: String,
    /// Whether it holds.
    pub verdict: Verdict,
    /// The figures, or the reason.
    pub why: String,
}

const FINDINGS: &str = include_str!("../../../../studies/findings.csv");
const MIB: u64 = 1 << 20;

/// Predictions by short names.
struct Look<'a>(&'a Catalogue);

/// A load of a study, in words.
#[derive(Clone, Copy)]
struct Load {
    read: bool,
    random: bool,
    kib: u64,
    depth: usize,
    workers: usize,
    mib: u64,
}

const fn seq(read: bool, depth: usize) -> Load {
    Load { read, random: false, kib: 1024, depth, workers: 1, mib: 4096 }
}

const fn rnd(read: bool, depth: usize) -> Load {
    Load { read, random: true, kib: 4, depth, workers: 1, mib: 4096 }
}

impl Load {
    const fn kib(self, kib: u64) -> Self {
        Self { kib, ..self }
    }

    const fn mib(self, mib: u64) -> Self {
        Self { mib, ..self }
    }

    const fn workers(self, workers: usize) -> Self {
        Self { workers, ..self }
    }
}

impl Look<'_> {
    fn system(&self, name: &str) -> System {
        self.0.system(name).expect("the findings name systems of the catalogue")
    }

    fn rate(&self, name: &str, load: Load) -> f64 {
        let span = (load.mib > 0).then_some(load.mib * MIB);
        let simple = Workload::simple(load.read, load.random, load.kib * 1024, load.depth);
        let repeats = name.starts_with("000");
        let workload = Workload { span_bytes: span, workers: load.workers, repeats, ..simple };
        predict(&self.system(name), State::Normal, &workload).mb_per_s
    }

    fn ratio(&self, one: &str, other: &str, load: Load) -> f64 {
        self.rate(one, load) / self.rate(other, load)
    }

    /// One of study 004's loads in a state.
    fn four(&self, name: &str, load: &str, state: State) -> f64 {
        let load = super::questions::load_004(load).expect("the study's loads have names");
        predict(&self.system(name), state, &load).mb_per_s
    }

    fn kept(&self, name: &str, load: &str, state: State) -> f64 {
        self.four(name, load, state) / self.four(name, load, State::Normal)
    }

    fn rebuild_hours(&self, name: &str) -> f64 {
        let load = Workload::simple(true, true, 4096, 1);
        let prediction = predict(&self.system(name), State::Normal, &load);
        prediction.rebuild_seconds.unwrap_or(0.0) / 3600.0
    }

    /// Random writes of X25-E sets over one controller or two.
    fn over_two(&self, controllers: usize) -> f64 {
        let configuration = Configuration {
            drives: "4xx25e".into(),
            layout: "raid0".into(),
            columns: None,
            interleave_kib: Some(64),
            groups: None,
            controller: "adaptec-5085".into(),
            controllers,
            over: Over::SimpleVolumes,
            file_system: true,
            link: None,
            journal: None,
            filled: None,
        };
        let system = self.0.build("two controllers", &configuration).expect("it is possible");
        predict(&system, State::Normal, &Workload::simple(true, true, 4096, 32)).iops
    }
}

type Check = fn(&Look) -> (bool, String);

fn within(value: f64, low: f64, high: f64, what: &str) -> (bool, String) {
    ((low..=high).contains(&value), format!("{what}: {value:.2}"))
}

fn all(checks: &[(bool, String)]) -> (bool, String) {
    let texts: Vec<&str> = checks.iter().map(|(_, text)| text.as_str()).collect();
    (checks.iter().all(|(holds, _)| *holds), texts.join("; "))
}

const CHECKS: &[(&str, Check)] = &[
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
];

/// Every finding of `studies/findings.csv`, judged.
pub fn findings(catalogue: &Catalogue) -> Vec<Finding> {
    use rayon::prelude::*;
    let lines: Vec<&str> = FINDINGS.lines().skip(1).filter(|line| !line.trim().is_empty()).collect();
    lines.par_iter().map(|line| judge(catalogue, line)).collect()
}

fn judge(catalogue: &Catalogue, line: &str) -> Finding {
    let fields = crate::studies::fields(line);
    let field = |index: usize| fields.get(index).map_or("", String::as_str);
    let (id, topic, evidence, support) = (field(1), field(2), field(5), field(6));
    if let Some((_, check)) = CHECKS.iter().find(|(name, _)| *name == id) {
        let (holds, why) = check(&Look(catalogue));
        let verdict = if holds { Verdict::Holds } else { Verdict::DoesNotHold };
        return Finding { id: id.into(), verdict, why };
    }
    let why = match (support, topic) {
        ("cited", _) => "it is about the work of others, whose systems are not described".to_owned(),
        ("stated", _) => "it is advice or description, not a figure".to_owned(),
        (_, "method") => "it is about how to measure".to_owned(),
        (_, "summary" | "anomaly") => {
            "it is about the print, or about what the study cannot explain itself".to_owned()
        }
        _ if field(0) == "003" || evidence.contains("no numbers") => {
            "the study shows curves without numbers".to_owned()
        }
        _ => format!("no prediction is asked for this yet: the rows of {evidence} stand in the tables"),
    };
    Finding { id: id.into(), verdict: Verdict::CannotBeModelled, why }
}
