//! Questions that the rows of a published table ask. A row whose figure, unit or load is unknown
//! asks nothing: any other quantity would be a wrong answer.

use crate::predict::{State, Workload};
use crate::studies::{DataError, Row, Table};
use crate::system::{Configuration, Over};

const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;

/// A published figure and what it is about.
pub(super) struct Question {
    pub study: String,
    pub table: String,
    pub row: String,
    pub metric: String,
    pub published: f64,
    pub test: String,
    pub configuration: String,
    pub asked: Asked,
}

pub(super) enum Asked {
    /// A figure of a run; the mean over several spans.
    Run {
        subject: Subject,
        state: State,
        loads: Vec<Workload>,
        figure: Figure,
    },
    /// The ratio of two.
    Ratio {
        subjects: [Subject; 2],
        load: Workload,
    },
    /// A number of bonnie's or PostMark's.
    Metric {
        subject: Subject,
        name: String,
    },
    /// Minutes of an idle rebuild.
    Rebuild {
        subject: Subject,
    },
    /// The slowest request of a long run, in milliseconds.
    Worst {
        subject: Subject,
        read: bool,
    },
    /// Writes with the drive's cache off, in microseconds.
    Uncached {
        subject: Subject,
    },
    /// A multiple of a single drive's figure.
    Times {
        subject: Subject,
        drives: f64,
        load: Workload,
        figure: Figure,
    },
    /// Percent of the bus that a load takes.
    Bus {
        subject: Subject,
        load: Workload,
    },
    /// Percent of a core that software RAID takes on top of what hardware takes.
    Processor {
        subject: Subject,
        load: Workload,
    },
    /// Rate of an array whose caches are off.
    UncachedRate {
        subject: Subject,
    },
    Nothing,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Figure {
    Rate,
    Requests,
    Milliseconds,
    Microseconds,
}

pub(super) enum Subject {
    Named(String),
    Made(Box<Configuration>),
}

impl Asked {
    /// Configurations that the answer depends on.
    pub(super) fn subjects(&self) -> Vec<&Subject> {
        match self {
            Self::Run { subject, .. }
            | Self::Metric { subject, .. }
            | Self::Rebuild { subject }
            | Self::Worst { subject, .. }
            | Self::Uncached { subject }
            | Self::Times { subject, .. }
            | Self::Bus { subject, .. }
            | Self::Processor { subject, .. }
            | Self::UncachedRate { subject } => vec![subject],
            Self::Ratio { subjects, .. } => subjects.iter().collect(),
            Self::Nothing => Vec::new(),
        }
    }
}

/// Returns the question of a row; `None` if the row is not a measurement.
pub(super) fn question(row: &Row) -> Result<Option<Question>, DataError> {
    match row.what {
        Table::FileSizes => file_sizes(row),
        Table::Metrics => metrics(row),
        Table::Requests => requests(row),
        Table::DataSheets => data_sheets(row),
        Table::States => states(row),
        Table::Rebuilds => rebuilds(row),
        Table::Passed => Ok(None),
    }
}

fn configuration(drives: &str, layout: &str, interleave_kib: u64, controller: &str) -> Configuration {
    Configuration {
        drives: drives.into(),
        layout: layout.into(),
        columns: None,
        interleave_kib: (layout != "single").then_some(interleave_kib),
        groups: None,
        controller: controller.into(),
        controllers: 1,
        over: Over::Drives,
        file_system: false,
        link: None,
        journal: None,
        filled: None,
    }
}

fn layout_of(level: &str) -> String {
    let level = level.split('+').next().unwrap_or(level);
    level.replace([' ', '-'], "").to_lowercase()
}

/// Study 000: CrystalDiskMark.
fn file_sizes(row: &Row) -> Result<Option<Question>, DataError> {
    let config = row.text("config");
    let chipset = row.text("system").contains("RST");
    let level = layout_of(row.text("raid_equivalent"));
    let name = match (level.as_str(), chipset) {
        ("single", _) => "000-single".to_owned(),
        (level, true) => format!("000-rst-{level}"),
        ("raid0", false) => "000-ss-simple".to_owned(),
        ("raid1", false) => "000-ss-mirror".to_owned(),
        (_, false) => "000-ss-parity".to_owned(),
    };
    let sizes: Vec<u64> = row
        .text("file_size_mib")
        .split(|character: char| !character.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .collect();
    if sizes.is_empty() {
        row.number("file_size_mib")?;
    }
    let (read, random) = (row.text("op") == "read", row.text("access") == "random");
    let block = row.number("block_kib")? as u64 * KIB;
    let depth = row.number("queue_depth")? as usize;
    let workers = row.number("threads")? as usize;
    let simple = Workload { workers, ..Workload::simple(read, random, block, depth) };
    let load = |mib: &u64| Workload { span_bytes: Some(mib * MIB), repeats: true, ..simple.clone() };
    let (test, op, size) = (row.text("test"), row.text("op"), row.text("file_size_mib"));
    Ok(Some(Question {
        study: row.text("study").into(),
        table: row.text("table").into(),
        row: format!("{config} {test} {op} {size} MiB"),
        metric: "MB/s".into(),
        published: row.number("mb_per_s")?,
        test: format!("{test} {op} {size}"),
        configuration: name.clone(),
        asked: match is_one_of(row, "op", &["read", "write"])
            && is_one_of(row, "access", &["random", "sequential"])
        {
            true => Asked::Run {
                subject: Subject::Named(name),
                state: State::Normal,
                loads: sizes.iter().map(load).collect(),
                figure: Figure::Rate,
            },
            false => Asked::Nothing,
        },
    }))
}

/// Study 001: bonnie and PostMark.
fn metrics(row: &Row) -> Result<Option<Question>, DataError> {
    let (level, metric) = (row.text("level"), row.text("metric"));
    let name = format!("001-{}", layout_of(level));
    Ok(Some(Question {
        study: row.text("study").into(),
        table: if row.text("tool").starts_with("bonnie") { "Table 1".into() } else { "Table 2".into() },
        row: format!("{level} {}", row.text("tool")),
        metric: format!("{metric} {}", row.text("unit")),
        published: row.number("value")?,
        test: metric.into(),
        configuration: level.into(),
        asked: match row.text("unit").is_empty() || unit_001(metric) == row.text("unit") {
            true => Asked::Metric { subject: Subject::Named(name), name: metric.into() },
            false => Asked::Nothing,
        },
    }))
}

/// Study 002: its solid-state drive alone.
fn single_002() -> Subject {
    Subject::Named("002-ssd1".into())
}

/// Study 002: a configuration in words.
fn subject_002(config: &str, level: &str, disks: f64) -> Subject {
    let words = config.to_lowercase();
    if level == "single" {
        return single_002();
    }
    let number_before = |word: &str| {
        let before = &words[..words.find(word)?];
        let digits: String = before.trim_end().chars().rev().take_while(char::is_ascii_digit).collect();
        digits.chars().rev().collect::<String>().parse::<usize>().ok()
    };
    let mut controllers = number_before("controller").or_else(|| number_before("ctrl")).unwrap_or(1);
    if words.contains("per controller") || words.contains("/ctlr") || words.contains("/ctrl") {
        controllers = controllers.max(2);
    }
    let plain =
        words.contains("option a") || words.contains("no raid controller") || words.contains("no controller");
    let software = words.contains("software") || words.contains("sw raid");
    let over = if plain || !software {
        Over::Drives
    } else if words.contains("jbod") {
        Over::Jbod
    } else if words.contains("over hardware") || words.contains("hw raid0") {
        Over::HardwareRaid0
    } else {
        Over::SimpleVolumes
    };
    let drive = if words.contains("hdd") { "sas10k" } else { "x25e" };
    let controller = if plain { "software-ports" } else { "adaptec-5085" };
    let layout = layout_of(level);
    Subject::Made(Box::new(Configuration {
        controllers,
        over,
        file_system: software || words.contains("file system") || words.contains("filesys"),
        ..configuration(&format!("{disks}x{drive}"), &layout, 64, controller)
    }))
}

/// Streams and requests of a named load of study 002.
fn load_002(workload: &str, read: bool, random: bool, kib: f64) -> Workload {
    let (depth, workers) = match workload.split(' ').next().unwrap_or_default() {
        "heavy" => (16, 10),
        "latency" => (1, 1),
        _ => (32, 1),
    };
    Workload { workers, ..Workload::simple(read, random, (kib * KIB as f64) as u64, depth) }
}

/// True if a field has one of the known values.
fn is_one_of(row: &Row, heading: &str, known: &[&str]) -> bool {
    known.contains(&row.text(heading))
}

fn requests(row: &Row) -> Result<Option<Question>, DataError> {
    let (config, level, metric) = (row.text("config"), row.text("level"), row.text("metric"));
    let (read, random) = (row.text("op") == "read", row.text("pattern") == "random");
    let kib = row.number("block_kib")?;
    let disks = row.number("disks")?;
    let load = load_002(row.text("workload"), read, random, kib);
    let unit = row.text("unit");
    // A figure that is not known by its name and unit is not answered: any other quantity would be
    // a wrong answer.
    let figure = match unit {
        "IOPS" => Some(Figure::Requests),
        "ms" => Some(Figure::Milliseconds),
        "us" => Some(Figure::Microseconds),
        "MB/s" => Some(Figure::Rate),
        _ => None,
    };
    let is_rate = |figure: &Figure| matches!(figure, Figure::Rate | Figure::Requests);
    let rate = figure.filter(is_rate);
    let latency = figure.filter(|figure| !is_rate(figure));
    let subject = subject_002(config, level, disks);
    let run = |subject, load, figure: Option<Figure>| match figure {
        Some(figure) => Asked::Run { subject, state: State::Normal, loads: vec![load], figure },
        None => Asked::Nothing,
    };
    let asked = match metric {
        _ if !is_one_of(row, "op", &["read", "write"])
            || !is_one_of(row, "pattern", &["random", "sequential"]) =>
        {
            Asked::Nothing
        }
        "ssd_over_hdd_speedup" if unit == "x" => {
            let ssd = subject_002(&format!("hardware {level}, SSD"), level, disks);
            let hdd = subject_002(&format!("hardware {level}, HDD"), level, disks);
            Asked::Ratio { subjects: [ssd, hdd], load }
        }
        "latency_write_cache_off" if unit == "us" => Asked::Uncached { subject },
        "single_ssd_throughput" | "theoretical_throughput" => match rate {
            Some(figure) => {
                let drives = if metric == "single_ssd_throughput" { 1.0 } else { disks };
                Asked::Times { subject: single_002(), drives, load, figure }
            }
            None => Asked::Nothing,
        },
        // The number of drives in the array is not a measurement.
        "multiplier" => return Ok(None),
        "pcie_x8_utilisation" if unit == "%" => Asked::Bus { subject, load },
        "cpu" | "software_cpu" if unit == "%" => Asked::Processor { subject, load },
        "max_latency" | "max_latency_write_cache_on" if unit == "ms" => Asked::Worst { subject, read },
        "throughput" | "measured_throughput" => run(subject, load, rate),
        "measured_iops" => run(subject, load, rate.filter(|_| unit == "IOPS")),
        "avg_latency" | "avg_latency_write_cache_on" => run(subject, load, latency),
        _ => Asked::Nothing,
    };
    let (table, workload, op, pattern) =
        (row.text("table"), row.text("workload"), row.text("op"), row.text("pattern"));
    let test = format!("{workload} {op} {pattern} {kib} KiB");
    Ok(Some(Question {
        study: row.text("study").into(),
        table: table.into(),
        row: format!("{config} {test}"),
        metric: format!("{metric} {unit}"),
        published: row.number("value")?,
        test: format!("{table} {test} {metric}"),
        configuration: config.into(),
        asked,
    }))
}

/// Table 1 of study 002: only the array was measured, the other rows are data sheets and prices.
fn data_sheets(row: &Row) -> Result<Option<Question>, DataError> {
    let column = row.text("reconstructed_column");
    let (read, random) = (column.contains("read"), column.contains("random"));
    if row.text("notes").contains("from specifications") || column.contains("price") {
        return Ok(None);
    }
    let known = match (column, row.text("unit")) {
        ("random_read_latency" | "random_write_latency", "ms") => Some((Figure::Milliseconds, 1, 4)),
        ("random_read_iops" | "random_write_iops", "IOPS") => Some((Figure::Requests, 32, 4)),
        ("sequential_read" | "sequential_write" | "sequential_write_write_cache_off", "MB/s") => {
            Some((Figure::Rate, 32, 1024))
        }
        _ => None,
    };
    let (figure, depth, kib) = known.unwrap_or((Figure::Rate, 32, 1024));
    let disks = row.number("disks")?;
    let load = Workload::simple(read, random, kib * KIB, depth);
    let subject = subject_002(row.text("device"), row.text("level"), disks);
    let asked = match column.contains("cache_off") {
        _ if known.is_none() => Asked::Nothing,
        true => Asked::UncachedRate { subject },
        false => Asked::Run { subject, state: State::Normal, loads: vec![load], figure },
    };
    Ok(Some(Question {
        study: row.text("study").into(),
        table: row.text("table").into(),
        row: row.text("device").into(),
        metric: format!("{column} {}", row.text("unit")),
        published: row.number("value")?,
        test: format!("{} {column}", row.text("table")),
        configuration: row.text("device").into(),
        asked,
    }))
}

/// fio's three loads of study 004.
pub(super) fn load_004(name: &str) -> Option<Workload> {
    let span_bytes = Some(6 << 40);
    let load = |read| Workload { span_bytes, ..Workload::simple(read, false, MIB, 64) };
    Some(match name {
        "seq_read" => load(true),
        "seq_write" => load(false),
        "mixed" => Workload {
            read_share: 0.5,
            random_share: 1.0,
            blocks: vec![(4 * KIB, 20.0), (64 * KIB, 50.0), (256 * KIB, 20.0), (2 * MIB, 10.0)],
            depth: 64,
            workers: 8,
            span_bytes,
            repeats: false,
        },
        _ => return None,
    })
}

fn subject_004(row: &Row) -> Result<Subject, DataError> {
    let (vendor, level) = (row.text("vendor"), layout_of(row.text("level")));
    let vendor = vendor.to_lowercase();
    let host = ["adaptec", "broadcom", "qnap"].into_iter().find(|name| vendor.contains(name));
    let host = host.or_else(|| vendor.contains("open-e").then_some("zfs"));
    let host = host.or_else(|| vendor.contains("icy").then_some("icybox"));
    let capacity = row.number("disk_capacity_tb")?;
    Ok(Subject::Named(match host {
        Some(host) => format!("004-{host}-{level}"),
        None => format!("004-single-{capacity}tb"),
    }))
}

fn states(row: &Row) -> Result<Option<Question>, DataError> {
    let (state, workload) = (row.text("state"), row.text("workload"));
    let subject = subject_004(row)?;
    let array_state = match state {
        "normal" => Some(State::Normal),
        "degraded" => Some(State::Degraded),
        "rebuilding" => Some(State::Rebuilding),
        _ => None,
    };
    let asked = match (array_state, load_004(workload)) {
        (Some(state), Some(load)) => Asked::Run { subject, state, loads: vec![load], figure: Figure::Rate },
        _ => Asked::Nothing,
    };
    let configuration = format!("{} {} {}", row.text("vendor"), row.text("model"), row.text("level"));
    Ok(Some(Question {
        study: row.text("study").into(),
        table: row.text("table").into(),
        row: format!("{configuration} {} TB {state}", row.text("disk_capacity_tb")),
        metric: format!("{workload} MB/s"),
        published: row.number("mb_per_s")?,
        test: format!("{state} {workload}"),
        configuration,
        asked,
    }))
}

fn rebuilds(row: &Row) -> Result<Option<Question>, DataError> {
    let configuration = format!("{} {} {}", row.text("vendor"), row.text("model"), row.text("level"));
    Ok(Some(Question {
        study: row.text("study").into(),
        table: "rebuild times".into(),
        row: format!("{configuration} {} TB", row.text("disk_capacity_tb")),
        metric: "rebuild min".into(),
        published: row.number("rebuild_minutes")?,
        test: "rebuild".into(),
        configuration,
        asked: Asked::Rebuild { subject: subject_004(row)? },
    }))
}

/// Unit of a number of bonnie's or PostMark's as it is predicted.
fn unit_001(name: &str) -> &'static str {
    match name {
        "test_file_size" | "data_read" | "data_written" => "MB",
        "test_file_size_bytes" => "B",
        "write_per_char_putc" | "write_block" | "rewrite" | "read_per_char_getc" | "read_block" => "kB/s",
        "random_seek_04k_3_seekers" => "seeks/s",
        "total_time" | "transaction_time" => "s",
        "data_read_rate" | "data_written_rate" => "MB/s",
        cpu if cpu.ends_with("_cpu") => "%",
        rate if rate.ends_with("_rate") => "1/s",
        _ => "files",
    }
}
