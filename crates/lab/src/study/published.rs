//! The published tables, read from `studies/`: each figure has a key that ours have, too. Pure.

use crate::records::import::table::{Headings, fields};
use crate::study::StudyNumber;

/// A published figure.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Published {
    /// Table and system.
    pub table: String,
    /// Configuration and test, as in the study.
    pub row: String,
    /// Quantity and unit.
    pub metric: String,
    /// The figure, in that unit.
    pub value: f64,
    /// Key of our corresponding figure.
    pub key: String,
    /// Key of the single drive's figure.
    pub single_key: String,
}

const S000: [&str; 7] = [
    include_str!("../../../../studies/000-table-A1-single-disk.csv"),
    include_str!("../../../../studies/000-table-A2-simple.csv"),
    include_str!("../../../../studies/000-table-A3-mirror.csv"),
    include_str!("../../../../studies/000-table-A4-parity.csv"),
    include_str!("../../../../studies/000-table-A5-raid0.csv"),
    include_str!("../../../../studies/000-table-A6-raid1.csv"),
    include_str!("../../../../studies/000-table-A7-raid5.csv"),
];
const S001: [&str; 2] = [
    include_str!("../../../../studies/001-table-1-bonnie.csv"),
    include_str!("../../../../studies/001-table-2-postmark.csv"),
];
const S002: [&str; 10] = [
    include_str!("../../../../studies/002-table-3-single-ssd-latency.csv"),
    include_str!("../../../../studies/002-table-4-hdd-vs-ssd-raid.csv"),
    include_str!("../../../../studies/002-table-5-random-heavy-8ssd.csv"),
    include_str!("../../../../studies/002-table-6-sequential-heavy-8ssd.csv"),
    include_str!("../../../../studies/002-table-7-random-light-240gb.csv"),
    include_str!("../../../../studies/002-table-8-sequential-light-240gb.csv"),
    include_str!("../../../../studies/002-table-9-random-latency-240gb.csv"),
    include_str!("../../../../studies/002-table-10-sequential-latency-240gb.csv"),
    include_str!("../../../../studies/002-table-12-software-raid0-options.csv"),
    include_str!("../../../../studies/002-table-13-two-controllers-4ssd.csv"),
];
const S002_SPECIFICATIONS: &str = include_str!("../../../../studies/002-table-1-hdd-ssd-raid0.csv");
const S004: [&str; 2] = [
    include_str!("../../../../studies/004-table-4-single-drive.csv"),
    include_str!("../../../../studies/004-table-9-usb-das.csv"),
];
/// The findings of all studies.
pub(super) const FINDINGS: &str = include_str!("../../../../studies/findings.csv");

/// All figures of a study that may have a corresponding configuration of ours.
pub(super) fn published(study: StudyNumber) -> Vec<Published> {
    match study {
        StudyNumber::S000 => S000.iter().flat_map(|text| groups_000(text)).collect(),
        StudyNumber::S001 => S001.iter().flat_map(|text| rows(text, row_001)).collect(),
        StudyNumber::S002 => {
            let specified = rows(S002_SPECIFICATIONS, specification_002);
            specified.into_iter().chain(S002.iter().flat_map(|text| rows(text, row_002))).collect()
        }
        StudyNumber::S003 => Vec::new(),
        StudyNumber::S004 => S004.iter().flat_map(|text| rows(text, row_004)).collect(),
    }
}

fn rows<T>(text: &str, read: impl Fn(&Headings, &[String]) -> Option<T>) -> Vec<T> {
    let mut lines = text.lines();
    let headings = Headings::of(lines.next().unwrap_or_default());
    lines.filter_map(|line| read(&headings, &fields(line))).collect()
}

/// Study 000 prints four file sizes and judges by two groups: the mean of 16 and 32 MiB, and of 1
/// and 4 GiB.
fn groups_000(text: &str) -> Vec<Published> {
    let measured = rows(text, |headings, row| {
        (headings.get(row, "row_kind") == Some("measured")).then_some(())?;
        let get = |name: &str| headings.get(row, name);
        let size: u64 = get("file_size_mib")?.parse().ok()?;
        let value: f64 = get("mb_per_s")?.parse().ok()?;
        let group = if size <= 32 { "small" } else { "large" };
        let (level, test, op) = (get("raid_equivalent")?, get("test")?, get("op")?);
        let key = format!("{level}/{test}/{group}/{op}");
        let single_key = format!("single/{test}/{group}/{op}");
        let table = format!("{}: {}", get("table")?, get("config")?);
        let row = format!("{} {test} {op}, {group} files", get("config")?);
        Some(Published { table, row, metric: "MB/s".into(), value, key, single_key })
    });
    let mut groups: Vec<(Published, f64)> = Vec::new();
    for one in measured {
        match groups.iter_mut().find(|(other, _)| other.key == one.key) {
            Some((sum, count)) => {
                sum.value += one.value;
                *count += 1.0;
            }
            None => groups.push((one, 1.0)),
        }
    }
    groups.into_iter().map(|(sum, count)| Published { value: sum.value / count, ..sum }).collect()
}

/// Names of bonnie's and PostMark's figures, published and ours.
const NAMES_001: [(&str, &str); 18] = [
    ("write_per_char_putc", "per_char_write"),
    ("write_block", "block_write"),
    ("rewrite", "rewrite"),
    ("read_per_char_getc", "per_char_read"),
    ("read_block", "block_read"),
    ("random_seek_04k_3_seekers", "seeks"),
    ("total_time", "total_time"),
    ("transactions_rate", "transactions"),
    ("files_created_rate", "created"),
    ("creation_alone_rate", "created_alone"),
    ("creation_mixed_rate", "created_mixed"),
    ("files_read_rate", "files_read"),
    ("files_appended_rate", "files_appended"),
    ("files_deleted_rate", "deleted"),
    ("deletion_alone_rate", "deleted_alone"),
    ("deletion_mixed_rate", "deleted_mixed"),
    ("data_read_rate", "data_read"),
    ("data_written_rate", "data_written"),
];

fn row_001(headings: &Headings, row: &[String]) -> Option<Published> {
    let get = |name: &str| headings.get(row, name);
    let metric = get("metric")?;
    let (_, ours) = NAMES_001.iter().find(|(theirs, _)| *theirs == metric)?;
    let value: f64 = get("value")?.parse().ok()?;
    let (value, unit) = match get("unit")? {
        "kB/s" | "K/s" | "KB/s" | "K/sec" | "KiB/s" => (value * 1024.0 / 1e6, "MB/s"),
        "MB/s" => (value * 1.048_576, "MB/s"),
        unit => (value, unit),
    };
    let level = get("level")?.replace(' ', "");
    Some(Published {
        table: get("tool")?.to_owned(),
        row: format!("{level} {ours}"),
        metric: unit.to_owned(),
        value,
        key: format!("{level}/{ours}"),
        single_key: format!("single/{ours}"),
    })
}

/// Table 1: drives by their specifications, and an array with an unknown method. None of our
/// figures correspond.
fn specification_002(headings: &Headings, row: &[String]) -> Option<Published> {
    let get = |name: &str| headings.get(row, name);
    let value: f64 = get("value")?.parse().ok()?;
    let (device, what) = (get("device")?, get("reconstructed_column")?.replace('_', " "));
    // The prices are doubtful prints.
    (!what.contains("price")).then(|| Published {
        table: "Table 1".into(),
        row: format!("{device}, {what}"),
        metric: get("unit").unwrap_or_default().to_owned(),
        value,
        key: format!("{device}/{what}/"),
        single_key: String::new(),
    })
}

fn row_002(headings: &Headings, row: &[String]) -> Option<Published> {
    let get = |name: &str| headings.get(row, name);
    let value: f64 = get("value")?.parse().ok()?;
    let (level, disks) = (get("level")?, get("disks")?);
    let (workload, pattern, op, block) = (get("workload")?, get("pattern")?, get("op")?, get("block_kib")?);
    // The load of Table 13 is inferred from its first column; our configuration corresponds to one
    // controller, not to two.
    let one_controller = get("config")?.starts_with("1 controller");
    let workload = workload.strip_suffix(" (inferred)").filter(|_| one_controller).unwrap_or(workload);
    let metric = get("metric")?;
    let unit = get("unit")?;
    // Arrays of hard disks, and the ratios to them, have no corresponding array of ours: ours has
    // drives of one kind.
    let kind = if get("config")?.contains("HDD") { "hdd-" } else { "" };
    let key_of = |config: &str| format!("{kind}{config}/{workload}/{pattern}/{op}/{block}/{metric}");
    Some(Published {
        table: get("table")?.to_owned(),
        row: format!("{}, {pattern} {op} of {block} KiB, {workload}", get("config")?),
        metric: format!("{metric} {unit}"),
        value,
        key: key_of(&format!("{level}x{disks}")),
        single_key: key_of("singlex1"),
    })
}

fn row_004(headings: &Headings, row: &[String]) -> Option<Published> {
    let get = |name: &str| headings.get(row, name);
    let value: f64 = get("mb_per_s")?.parse().ok()?;
    let (level, state, workload) = (get("level")?, get("state")?, get("workload")?);
    Some(Published {
        table: format!("{} {}", get("vendor")?, get("model")?),
        row: format!("{level} {state} {workload}"),
        metric: "MB/s".into(),
        value,
        key: format!("{level}/{state}/{workload}"),
        single_key: format!("single/normal/{workload}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_study_with_figures_gives_them() {
        for (study, least) in [
            (StudyNumber::S000, 100),
            (StudyNumber::S001, 40),
            (StudyNumber::S002, 200),
            (StudyNumber::S004, 60),
        ] {
            let found = published(study);
            assert!(found.len() >= least, "{}: {}", study.text(), found.len());
            assert!(found.iter().all(|one| one.value.is_finite()), "{}", study.text());
        }
        let of = |key: &str| {
            published(StudyNumber::S004).into_iter().find(|one| one.key == key).expect("it").value
        };
        assert_eq!((of("RAID5/normal/seq_write"), of("single/normal/seq_write")), (736.0, 245.0));
    }
}
