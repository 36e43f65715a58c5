//! The plan of each study: configurations, methods, the speed of its drives. Plain data.
//!
//! The drives' speeds are those of `studies/systems.csv` and the single-drive tables; one rate
//! stands for reads and writes and for all positions, as a paced file has no seeks.

use stripewise_layout::{LayoutSpec, Level};

use super::StudyNumber;
use crate::method::{Profile, Step, built_in};

/// Rates of a study's drives.
#[derive(Clone, Copy, Debug)]
pub(super) struct StudyDrives {
    /// 10^6 bytes a second.
    pub mb_per_s: u64,
    /// Requests a second.
    pub iops: u64,
    /// Rates of the drives for journals and tiers, if the study has faster ones for them.
    pub ssd: Option<(u64, u64)>,
}

/// A configuration of a study that our engine can build.
#[derive(Clone, Debug)]
pub(super) struct Configuration {
    /// Name in the keys of the published figures.
    pub key: String,
    /// The layout; `None` is a bare drive.
    pub layout: Option<LayoutSpec>,
    /// Data drives.
    pub drives: usize,
    /// Journal drives.
    pub journals: usize,
    /// Drives for frequently used data.
    pub tier: usize,
}

impl Configuration {
    /// Drives of all kinds.
    pub(super) fn all_drives(&self) -> usize {
        self.drives + self.journals + self.tier
    }
}

/// A part of a method and its configurations.
pub(super) struct Part {
    /// The method; the first of its sizes limits the used part of a target.
    pub profile: Profile,
    /// Configurations to measure.
    pub configurations: Vec<Configuration>,
    /// Builds a figure's key from the names of the configuration and the measurement.
    pub key: fn(&str, &Step) -> String,
}

/// Rates of a study's drives.
pub(super) fn drives(study: StudyNumber) -> StudyDrives {
    let of = |mb_per_s, iops| StudyDrives { mb_per_s, iops, ssd: None };
    match study {
        // 500 GB, 5400 rpm: 88 MB/s on large files, 106 to 224 random requests a second.
        StudyNumber::S000 => of(88, 224),
        // 2005's SATA disks; four of them fill the host's bus of 320 MB/s.
        StudyNumber::S001 => of(70, 150),
        // X25-E by its data sheet: 250 MB/s, 35,000 reads of 4 KiB.
        StudyNumber::S002 => of(250, 35_000),
        // 8 TB disks; the SSDs for journals and tiers (Samsung 850 Pro) by their data sheet.
        StudyNumber::S003 => StudyDrives { ssd: Some((500, 90_000)), ..of(171, 200) },
        StudyNumber::S004 => of(245, 400),
    }
}

fn bare() -> Configuration {
    Configuration { key: "single".into(), layout: None, drives: 1, journals: 0, tier: 0 }
}

fn array(key: &str, level: Level, drives: usize) -> Configuration {
    Configuration { key: key.into(), layout: Some(LayoutSpec::new(level)), drives, ..bare() }
}

/// The parts of a study; none for 004, which is an evaluation.
pub(super) fn parts(study: StudyNumber, quick: bool) -> Vec<Part> {
    match study {
        StudyNumber::S000 => s000(quick),
        StudyNumber::S001 => s001(quick),
        StudyNumber::S002 => s002(quick),
        StudyNumber::S003 => s003(quick),
        StudyNumber::S004 => Vec::new(),
    }
}

fn profile(name: &str) -> Profile {
    built_in(name).expect("a built-in profile")
}

/// Sets runs and lengths for a quick look or a full run.
fn timed(profile: Profile, quick: bool) -> Profile {
    let (runs, seconds) = if quick { (1, 0.5) } else { (3, 2.0) };
    Profile { runs, seconds, pause_seconds: 0.0, discard_first: false, ..profile }
}

fn keep(mut profile: Profile, wanted: impl Fn(&Step) -> bool) -> Profile {
    profile.steps.retain(|step| wanted(step));
    profile
}

/// Four tests, reads and writes, of both groups of sizes: 16 MiB represent the small ones, the
/// whole drive the large ones. The study's small files are faster because of its drives' caches;
/// paced files have none.
fn s000(quick: bool) -> Vec<Part> {
    let known = ["SEQ1M_Q1T1", "SEQ1M_Q16T1", "RND4K_Q1T1", "RND4K_Q32T1"];
    let is_known = |step: &Step| known.iter().any(|name| step.name.starts_with(&format!("{name}_")));
    let profile = timed(keep(profile("crystaldiskmark"), is_known), quick);
    let configurations = vec![
        bare(),
        array("RAID0", Level::Raid0, 4),
        array("RAID1", Level::Raid1, 2),
        array("RAID5", Level::Raid5, 4),
    ];
    let small = Profile { sizes: vec![16 << 20], ..profile.clone() };
    let profile = Profile { sizes: Vec::new(), ..profile };
    vec![
        Part { profile, configurations: configurations.clone(), key: |on, step| key_000(on, step, "large") },
        Part { profile: small, configurations, key: |on, step| key_000(on, step, "small") },
    ]
}

fn key_000(configuration: &str, step: &Step, group: &str) -> String {
    let (test, op) = step.name.rsplit_once('_').unwrap_or((&step.name, ""));
    format!("{configuration}/{test}/{group}/{op}")
}

/// bonnie's file and PostMark's files are shorter than the study's by one factor, like the drives.
fn s001(quick: bool) -> Vec<Part> {
    let configurations = || {
        vec![
            bare(),
            array("RAID50", Level::Raid50, 6),
            array("RAID5", Level::Raid5, 6),
            array("RAID0", Level::Raid0, 6),
            array("RAID10", Level::Raid10, 6),
        ]
    };
    let key = |configuration: &str, step: &Step| format!("{configuration}/{}", step.name);
    ["bonnie", "postmark"]
        .map(|name| {
            let mut profile = Profile { runs: if quick { 1 } else { 3 }, ..profile(name) };
            profile.files = profile.files.map(|method| method.shortened(if quick { 64 } else { 8 }));
            Part { profile, configurations: configurations(), key }
        })
        .into()
}

fn s002(quick: bool) -> Vec<Part> {
    let equal_capacity = || {
        vec![
            Configuration { key: "singlex1".into(), ..bare() },
            array("RAID0x4", Level::Raid0, 4),
            array("RAID5x5", Level::Raid5, 5),
            array("RAID10x8", Level::Raid10, 8),
        ]
    };
    let eight = || {
        vec![
            Configuration { key: "singlex1".into(), ..bare() },
            array("RAID0x8", Level::Raid0, 8),
            array("RAID5x8", Level::Raid5, 8),
            array("RAID10x8", Level::Raid10, 8),
        ]
    };
    let blocks: &[u64] = if quick { &[4, 8, 64, 256] } else { &[4, 8, 16, 32, 64, 128, 256, 512, 1024] };
    let of_blocks = |name: &str, blocks: &[u64], configurations, key| {
        let wanted = |step: &Step| blocks.contains(&(step.workload.blocks[0].bytes >> 10));
        Part { profile: timed(keep(profile(name), wanted), quick), configurations, key }
    };
    let part = |name, configurations, key| of_blocks(name, blocks, configurations, key);
    // Smaller and larger than most stripe units.
    let swept: &[u64] = if quick { &[8, 512] } else { &[4, 8, 64, 512, 1024] };
    let sweep = |configurations, key| of_blocks("iometer-light", swept, configurations, key);
    let light: fn(&str, &Step) -> String = |configuration, step| key_002(configuration, step, "light");
    let heavy: fn(&str, &Step) -> String = |configuration, step| key_002(configuration, step, "heavy");
    // Table 4: random requests of 8 KiB only.
    let mut table_4 = of_blocks(
        "iometer-heavy",
        &[8],
        vec![
            array("RAID0x4", Level::Raid0, 4),
            array("RAID5x5", Level::Raid5, 5),
            array("RAID10x4", Level::Raid10, 4),
        ],
        heavy,
    );
    table_4.profile = keep(table_4.profile, |step| !step.workload.pattern.is_sequential());
    vec![
        part("iometer-light", equal_capacity(), light),
        part("iometer-latency", equal_capacity(), |configuration, step| {
            key_002(configuration, step, "latency")
        }),
        part("iometer-heavy", eight(), heavy),
        table_4,
        sweep(stripe_units(quick), light),
        sweep(drive_counts(quick), light),
    ]
}

/// Figure 4: the stripe unit, on four drives. A key contains it in KiB.
fn stripe_units(quick: bool) -> Vec<Configuration> {
    let units: &[u64] = if quick { &[16, 64, 256] } else { &[8, 16, 32, 64, 128, 256, 512, 1024] };
    let one = |unit: &u64| {
        let layout = LayoutSpec { interleave_bytes: Some(unit << 10), ..LayoutSpec::new(Level::Raid0) };
        Configuration { layout: Some(layout), ..array(&format!("RAID0x4u{unit}"), Level::Raid0, 4) }
    };
    units.iter().map(one).collect()
}

/// Figure 5: one to eight drives.
fn drive_counts(quick: bool) -> Vec<Configuration> {
    let counts: &[usize] = if quick { &[1, 2, 4, 8] } else { &[1, 2, 3, 4, 5, 6, 7, 8] };
    let one = |count: &usize| match count {
        1 => Configuration { key: "RAID0n1".into(), ..bare() },
        count => array(&format!("RAID0n{count}"), Level::Raid0, *count),
    };
    counts.iter().map(one).collect()
}

/// A key without the metric: a figure contains throughput and latency.
fn key_002(configuration: &str, step: &Step, workload: &str) -> String {
    let op = if step.workload.read_share > 0.5 { "read" } else { "write" };
    let pattern = if step.workload.pattern.is_sequential() { "sequential" } else { "random" };
    format!("{configuration}/{workload}/{pattern}/{op}/{}", step.workload.blocks[0].bytes >> 10)
}

fn s003(quick: bool) -> Vec<Part> {
    let columns = |level, columns| LayoutSpec { columns: Some(columns), ..LayoutSpec::new(level) };
    let one = |key: &str, layout, journals| Configuration {
        key: key.into(),
        layout: Some(layout),
        drives: 12,
        journals,
        tier: 0,
    };
    // A mirror has as many columns as its tier has drives.
    let tiered = |key: &str, layout, tier| Configuration { tier, ..one(key, layout, 0) };
    let configurations = vec![
        bare(),
        one("003-m1", columns(Level::Raid10, 12), 0),
        tiered("003-m2", columns(Level::Raid1, 2), 2),
        tiered("003-m3", columns(Level::Raid10, 4), 4),
        one("003-p1", columns(Level::Raid5, 8), 0),
        one("003-p2", columns(Level::Raid5, 8), 2),
        one("003-p3", columns(Level::Raid5, 8), 3),
        one("003-p4", columns(Level::Raid5, 8), 4),
        one("003-d1", columns(Level::Raid6, 12), 0),
        one("003-d2", columns(Level::Raid6, 12), 3),
        one("003-d3", columns(Level::Raid6, 12), 4),
    ];
    let sizes: &[u64] = if quick { &[4, 64, 1024] } else { &[4, 16, 64, 256, 1024, 4096, 16_384, 65_536] };
    let wanted = |step: &Step| sizes.contains(&(step.workload.blocks[0].bytes >> 10));
    let profile = timed(keep(profile("atto"), wanted), quick);
    // The whole target, not ATTO's total length, which the caches of twelve disks could hold.
    let profile = Profile { moves_size_once: false, sizes: Vec::new(), ..profile };
    let key = |configuration: &str, step: &Step| format!("{configuration}/{}", step.name);
    vec![Part { profile, configurations, key }]
}
