//! Settings of an evaluation: drives, pace, loads, machine.

use std::fmt::Write;

use super::svg::escape;
use crate::records::results::Evaluation;
use crate::reports::tables::{bytes, number, short_name};

/// The conditions of a measurement, for the caption of every figure.
pub(super) fn conditions(evaluation: &Evaluation) -> String {
    let settings = &evaluation.settings;
    let runs = match settings.runs {
        1 => "1 run".to_owned(),
        runs => format!("median of {runs} runs"),
    };
    format!(
        "Drives of {}; {}; {runs} of {} s or more{}.",
        drive_sizes(evaluation),
        settings.pace_text(),
        settings.seconds_per_run,
        if settings.quick { "; a quick look" } else { "" },
    )
}

/// Drive size, and the arrays with other sizes.
fn drive_sizes(evaluation: &Evaluation) -> String {
    let common = evaluation.settings.drive_bytes;
    let others: Vec<String> = evaluation
        .arrays
        .iter()
        .filter(|array| array.drive_bytes != common)
        .map(|array| format!("{}: {}", array.layout, bytes(array.drive_bytes)))
        .collect();
    if others.is_empty() { bytes(common) } else { format!("{} ({})", bytes(common), others.join(", ")) }
}

/// All settings, and the machine.
pub(super) fn settings_and_environment(page: &mut String, evaluation: &Evaluation) {
    let (settings, environment) = (&evaluation.settings, &evaluation.environment);
    let unknown = || "not known".to_owned();
    let yes_no =
        |value: Option<bool>| value.map_or_else(unknown, |yes| if yes { "yes" } else { "no" }.to_owned());
    let workloads: Vec<String> = settings
        .workloads
        .iter()
        .map(|workload| format!("{}: {}", short_name(&workload.name), split_text(workload)))
        .collect();
    let mut entries = vec![
        ("drives", settings.drives.clone()),
        ("drives per array", format!("{} unless the table states another number", settings.drive_count)),
        ("drive size", format!("{}, that is {} bytes", drive_sizes(evaluation), settings.drive_bytes)),
        ("pace", format!("{} (requested: {})", settings.pace_text(), settings.pace_asked)),
        ("runs per cell", settings.runs.to_string()),
        (
            "minimum length of a run",
            format!("{} s and {} mean latencies", settings.seconds_per_run, settings.mean_latencies_per_run),
        ),
        ("rebuild priority", format!("{} % of drive time under load", settings.rebuild_priority_percent)),
        ("workloads", workloads.join("; ")),
        ("seed", settings.seed.to_string()),
    ];
    if let Some(host) = &evaluation.host {
        entries.push((
            "host without an array",
            format!(
                "{} files at once: {} MB/s read, {} MB/s written (sequential), {:.0} reads/s, {:.0} writes/s (4 KiB random)",
                host.drives,
                number(host.seq_read_mb_per_s),
                number(host.seq_write_mb_per_s),
                host.random_read_iops,
                host.random_write_iops
            ),
        ));
    }
    let or_unknown = |value: &Option<String>| value.clone().unwrap_or_else(unknown);
    let machine = [
        ("processor", or_unknown(&environment.cpu_model)),
        ("cores", environment.cores.map_or_else(unknown, |cores| cores.to_string())),
        ("parity kernel", or_unknown(&environment.parity_kernel)),
        ("memory", environment.memory_bytes.map_or_else(unknown, bytes)),
        ("system", or_unknown(&environment.system)),
        ("kernel", or_unknown(&environment.kernel)),
        ("virtual machine", yes_no(environment.virtual_machine)),
        ("file system", or_unknown(&environment.file_system)),
        ("mount options", or_unknown(&environment.mount_options)),
        ("device", or_unknown(&environment.device)),
        ("device model", or_unknown(&environment.device_model)),
        ("firmware", or_unknown(&environment.device_firmware)),
        ("rotational", yes_no(environment.rotational)),
        ("page cache bypassed", yes_no(environment.direct_io)),
        ("peak memory", evaluation.max_resident_bytes.map_or_else(unknown, bytes)),
        ("optimised build", yes_no(Some(environment.optimised_build))),
        ("version", environment.program_version.clone()),
    ];
    page.push_str("<div class=\"columns\">\n");
    let mut list = |title: &str, entries: &[(&str, String)]| {
        let _ = writeln!(page, "<div><h2>{title}</h2>\n<dl>");
        for (name, value) in entries {
            let _ = writeln!(page, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
        }
        page.push_str("</dl></div>\n");
    };
    list("Settings", &entries);
    list("Environment", &machine);
    page.push_str("</div>\n");
}

/// A workload with every parameter.
fn split_text(workload: &crate::Workload) -> String {
    let split: Vec<String> =
        workload.blocks.iter().map(|block| format!("{} {} %", bytes(block.bytes), block.share)).collect();
    let align = workload.align_bytes.map_or(String::new(), |align| format!(", aligned to {}", bytes(align)));
    let region = workload.region.map_or("the whole target".to_owned(), |region| {
        format!("{} at {}", bytes(region.length_bytes), region.offset_bytes)
    });
    format!("{} [{}]{align}, on {region}", describe(workload), split.join(", "))
}

/// A workload in few words.
pub(super) fn describe(workload: &crate::Workload) -> String {
    let pattern = workload.pattern.text();
    let what = match workload.read_share {
        share if share >= 1.0 => "reads".to_owned(),
        share if share <= 0.0 => "writes".to_owned(),
        share => format!("{:.0} % reads", 100.0 * share),
    };
    let sizes = workload.blocks.iter().filter(|block| block.share > 0).map(|block| block.bytes);
    let sizes = match (sizes.clone().min(), sizes.max()) {
        (Some(low), Some(high)) if low < high => format!("{} to {}", bytes(low), bytes(high)),
        (Some(only), _) => bytes(only),
        _ => "?".into(),
    };
    let jobs = if workload.jobs > 1 { format!("{} jobs, ", workload.jobs) } else { String::new() };
    let text = format!("{pattern} {what}, {sizes}, {jobs}depth {}", workload.depth);
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
