//! `report.html`: one self-contained file. Tables, charts, remarks, environment, settings, raw
//! data.
//!
//! Charts are inline SVG; colours come from a style sheet for light, dark and print. The raw data
//! are in a script element of JSON, and a few lines of script offer them as a file; without script
//! everything else still works. All external text (paths, errors) is escaped.

mod charts;
pub(crate) mod plot;
mod png;
mod raw_data;
mod settings;
pub(crate) mod svg;
pub(crate) mod table;
pub(crate) mod verdict;

use std::fmt::Write;

use crate::records::results::{Evaluation, RebuildKind, Remark, Severity};
use crate::reports::tables::{
    ColumnGroup, Table, bytes, cause_table, cpu_table, duration, latency_table, on_arrays, on_disks_text,
    percent_table, published_table, short_name, throughput_table, traffic_table,
};
use raw_data::raw_data;
use settings::{conditions, describe, settings_and_environment};
use svg::escape;
use table::table;

/// A chart as a separate file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chart {
    /// Title of the chart.
    pub title: String,
    /// The complete drawing.
    pub svg: String,
}

impl Chart {
    /// Takes a drawing of the page, with the page's colours.
    pub(crate) fn of(title: String, drawing: &str) -> Self {
        Self { svg: svg::standalone(drawing, STYLE, &title), title }
    }

    /// The same in pixels.
    ///
    /// # Panics
    /// Never: every chart is a drawing of ours.
    pub fn png(&self) -> Vec<u8> {
        png::png_of(&self.svg).expect("charts are drawings of ours")
    }
}

pub(crate) const STYLE: &str = include_str!("report/style.css");
const SCRIPT: &str = "document.getElementById('save').onclick=function(){\
var data=document.getElementById('results').textContent,link=document.createElement('a');\
link.href=URL.createObjectURL(new Blob([data],{type:'application/json'}));link.download='results.json';link.click();};";

/// The whole page.
pub fn report_html(evaluation: &Evaluation) -> String {
    let mut page = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
    let names: Vec<&str> = evaluation.arrays.iter().map(|array| array.layout.as_str()).collect();
    let title = format!("Evaluation of {}", names.join(", "));
    let _ = writeln!(
        page,
        "<title>Stripewise: {}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>",
        escape(&title)
    );
    header(&mut page, evaluation, &title);
    page += "<main>\n";
    matrix(&mut page, evaluation);
    remarks(&mut page, evaluation);
    on_disks(&mut page, evaluation);
    throughput_charts(&mut page, evaluation);
    latency(&mut page, evaluation);
    rebuilds(&mut page, evaluation);
    costs(&mut page, evaluation);
    published(&mut page, evaluation);
    verifications(&mut page, evaluation);
    settings_and_environment(&mut page, evaluation);
    raw_data(&mut page, evaluation);
    page += "</main>\n";
    let _ = writeln!(
        page,
        "<footer class=\"soft\">Stripewise {}. 1 MB is 10<sup>6</sup> bytes, 1 MiB is 2<sup>20</sup>.</footer>\n\
         <script>{SCRIPT}</script>\n</body>\n</html>",
        escape(&evaluation.environment.program_version)
    );
    page
}

fn header(page: &mut String, evaluation: &Evaluation, title: &str) {
    let environment = &evaluation.environment;
    let verified: u64 = evaluation.arrays.iter().map(|array| array.verified_bytes).sum();
    let corrupt: u64 = evaluation.arrays.iter().map(|array| array.corrupt_bytes).sum();
    let machine = [
        environment.cpu_model.clone(),
        environment.cores.map(|cores| format!("{cores} cores")),
        environment.memory_bytes.map(|memory| format!("{} memory", bytes(memory))),
        environment.file_system.clone(),
        environment.device_model.clone().or(environment.device.clone()),
    ];
    let machine: Vec<String> = machine.into_iter().flatten().collect();
    let _ = writeln!(
        page,
        "<header>\n<h1>{}</h1>\n<p class=\"verdict\">{}</p>\n<p class=\"soft\">{} · {} · {}</p>\n<div class=\"key\">",
        escape(title),
        escape(&verdict::verdict(evaluation)),
        escape(&evaluation.date),
        escape(&machine.join(", ")),
        escape(&evaluation.settings.drives)
    );
    let mut tile = |value: &str, class: &str, what: &str| {
        let _ = writeln!(
            page,
            "<div><b class=\"{class}\">{}</b><span>{}</span></div>",
            escape(value),
            escape(what)
        );
    };
    if evaluation.settings.virtual_time {
        tile("modelled", "", "drives in virtual time: no bytes to compare");
    } else if corrupt == 0 {
        tile(&bytes(verified), "good", "compared byte by byte after all failures and rebuilds: none differ");
    } else {
        tile(&bytes(corrupt), "bad", &format!("differ, of {} compared", bytes(verified)));
    }
    let pace =
        evaluation.settings.pace.as_ref().map_or("none".to_owned(), |pace| pace.text.replace(',', ", "));
    tile(&pace, "", &format!("pace of each drive ({})", evaluation.settings.pace_asked));
    let cells: usize =
        evaluation.arrays.iter().flat_map(|array| array.states.values()).map(|cells| cells.len()).sum();
    let runs: usize = evaluation
        .arrays
        .iter()
        .flat_map(|a| a.states.values())
        .flat_map(|c| c.values())
        .map(|m| m.runs.len())
        .sum();
    tile(&format!("{cells} cells, {runs} runs"), "", "measured");
    let warnings = evaluation.remarks.iter().filter(|remark| remark.severity >= Severity::Warning).count();
    tile(&warnings.to_string(), "", "warnings about figures or settings");
    tile(&duration(evaluation.seconds), "", "total time");
    page.push_str("</div>\n</header>\n");
}

fn matrix(page: &mut String, evaluation: &Evaluation) {
    page.push_str("<h2>The matrix</h2>\n");
    let caption = format!(
        "{} {} A figure marked <a class=\"mark\" href=\"#remarks\">!</a> has a remark. SW and SR: sequential writes and \
         reads of 1 MiB at depth 64; M: random, half reads, 4 KiB to 2 MiB, 8 jobs at depth 64 (study 004).",
        "Form of Table 3 of study 004.",
        escape(&conditions(evaluation))
    );
    table(page, &throughput_table(evaluation), &caption, "");
    let caption = format!("Form of study 000. {}", escape(&conditions(evaluation)));
    table(page, &percent_table(evaluation), &caption, "");
}

fn remarks(page: &mut String, evaluation: &Evaluation) {
    page.push_str("<h2 id=\"remarks\">Remarks</h2>\n");
    if evaluation.remarks.is_empty() {
        page.push_str(
            "<p>None: no figure was limited by the host, all runs count, all bytes are as written.</p>\n",
        );
        return;
    }
    remark_list(page, evaluation.remarks.iter());
}

/// The array measured at a disk's pace, with its remarks.
fn on_disks(page: &mut String, evaluation: &Evaluation) {
    let Some(disks) = &evaluation.on_disks else { return };
    page.push_str("<h2>On disks</h2>\n");
    table(page, &throughput_table(disks), &escape(&on_disks_text(disks)), "");
    remark_list(page, on_arrays(disks));
}

fn remark_list<'a>(page: &mut String, remarks: impl Iterator<Item = &'a Remark>) {
    page.push_str("<ul class=\"remarks\">\n");
    for remark in remarks {
        let (class, word) = match remark.severity {
            Severity::Error => ("error", "Error"),
            Severity::Warning => ("warning", "Warning"),
            Severity::Note => ("note", "Note"),
        };
        let subject = escape(&remark.subject());
        let _ =
            writeln!(page, "<li class=\"{class}\"><b>{word}: {subject}.</b> {}</li>", escape(&remark.text));
    }
    page.push_str("</ul>\n");
}

/// The key to the colours of the states.
const STATE_LEGEND: &str = "<span><i style=\"background:var(--normal)\"></i>normal</span>\
<span><i style=\"background:var(--degraded)\"></i>degraded (one drive removed)</span>\
<span><i style=\"background:var(--rebuilding)\"></i>rebuilding</span>";

fn per_workload(
    page: &mut String,
    evaluation: &Evaluation,
    what: &str,
    chart: impl Fn(&Evaluation, &str) -> Option<String>,
) {
    page.push_str("<div class=\"charts\">\n");
    for workload in &evaluation.settings.workloads {
        let Some(svg) = chart(evaluation, &workload.name) else { continue };
        let _ = writeln!(
            page,
            "<figure><h3>{} ({})</h3>{svg}<figcaption>{what} {}</figcaption></figure>",
            escape(&describe(workload)),
            escape(short_name(&workload.name)),
            escape(&conditions(evaluation))
        );
    }
    page.push_str("</div>\n");
}

fn throughput_charts(page: &mut String, evaluation: &Evaluation) {
    page.push_str("<h2>Throughput</h2>\n");
    let _ = writeln!(
        page,
        "<div class=\"legend\">{STATE_LEGEND}<span><i class=\"dash\"></i>a single drive</span><span>whisker: 95 % \
         interval</span></div>"
    );
    per_workload(page, evaluation, "Throughput with 95 % interval.", charts::throughput);
}

/// Explanation of the latencies of loads with many requests in flight.
fn queue_note(evaluation: &Evaluation) -> Option<String> {
    let in_flight = evaluation.settings.workloads.iter().map(|load| load.depth * load.jobs).max()?;
    let paced = match evaluation.settings.pace {
        Some(_) => "On drives limited to a pace, as here, that shows the queue and not the drive. ",
        None => "",
    };
    (in_flight > 1).then(|| {
        format!(
            "Up to {in_flight} requests are in flight. A request waits for those before it, so the mean latency is the \
             number in flight over the requests a second. {paced}The response time of a drive is that of one request in \
             flight, which the method iometer-latency of `stripewise lab run` measures."
        )
    })
}

fn latency(page: &mut String, evaluation: &Evaluation) {
    page.push_str("<h2>Latency</h2>\n");
    let _ = writeln!(
        page,
        "<div class=\"legend\">{STATE_LEGEND}<span>dot: median; bar: to the 99th percentile; long tick: 99.9th; short \
         tick: longest</span></div>"
    );
    if let Some(note) = queue_note(evaluation) {
        let _ = writeln!(page, "<p class=\"soft\">{}</p>", escape(&note));
    }
    per_workload(page, evaluation, "All requests of all runs, logarithmic scale.", charts::latency);
    let caption = format!("All requests of all runs. {}", escape(&conditions(evaluation)));
    table(page, &latency_table(evaluation), &caption, "");
}

fn rebuilds(page: &mut String, evaluation: &Evaluation) {
    if evaluation.arrays.iter().all(|array| array.rebuilds.is_empty()) {
        return;
    }
    page.push_str("<h2>Rebuild</h2>\n");
    page.push_str(
        "<div class=\"legend\"><span><i class=\"stroke\" style=\"color:var(--normal)\"></i>load, MB/s</span>\
         <span><i class=\"stroke\" style=\"color:var(--rebuilding)\"></i>written to the replacement by rebuild and load, MB/s</span>\
         <span><i class=\"dash\"></i>rebuilt, %</span></div>\n<div class=\"charts wide\">\n",
    );
    for array in &evaluation.arrays {
        let of_kind = |kind| array.rebuilds.iter().filter(move |rebuild| rebuild.kind == kind);
        // One chart of each kind: the first with load, and the idle one.
        let shown = of_kind(RebuildKind::Load).take(1).chain(of_kind(RebuildKind::Idle).take(1));
        for rebuild in shown {
            let kind = match rebuild.kind {
                RebuildKind::Load => format!(
                    "under load at its beginning, the last {} without",
                    duration(rebuild.idle_seconds)
                ),
                RebuildKind::Idle => "without load".into(),
            };
            let _ = writeln!(
                page,
                "<figure><h3>{}, {}</h3>{}<figcaption>{} lost; {} written to its replacement in {}; rebuild priority {} %. {}</figcaption>\
                 </figure>",
                escape(&array.layout),
                escape(&kind),
                charts::rebuild(array, rebuild),
                escape(&rebuild.lost_drive),
                bytes(rebuild.rebuilt_bytes),
                duration(rebuild.seconds),
                evaluation.settings.rebuild_priority_percent,
                escape(&conditions(evaluation))
            );
        }
    }
    page.push_str("</div>\n");
}

fn costs(page: &mut String, evaluation: &Evaluation) {
    page.push_str("<h2>Costs</h2>\n");
    let caption = format!(
        "All threads of the process, generation and verification of data included. {}",
        escape(&conditions(evaluation))
    );
    if cpu_table(evaluation).has_figures() {
        table(page, &cpu_table(evaluation), &caption, "");
    }
    let caption = format!(
        "Counted at the drives, between the engine and their pace: parity, copies, pre-reads and, while rebuilding, the \
         rebuild. {}",
        escape(&conditions(evaluation))
    );
    table(page, &traffic_table(evaluation), &caption, "");
    if let Some(causes) = cause_table(evaluation) {
        let caption = format!(
            "A position is a request that does not begin where the previous one on the drive ended: a seek, or a wait for \
             the platter, on a disk. While rebuilding, the rebuild is counted too. {}",
            escape(&conditions(evaluation))
        );
        table(page, &causes, &caption, "names");
    }
}

fn published(page: &mut String, evaluation: &Evaluation) {
    let Some(found) = published_table(evaluation) else { return };
    page.push_str("<h2>Published figures for comparison</h2>\n");
    let caption = "Toshiba, What is the best RAID configuration for 4 Drives? (2023), Table 9 over Table 4: real hard drives, \
                   where seeks count; shares compare, absolute figures do not.";
    table(page, &found, caption, "names");
}

fn verifications(page: &mut String, evaluation: &Evaluation) {
    page.push_str("<h2>Verification of every byte</h2>\n");
    let columns = ["layout", "drives missing", "compared", "differ", "unreadable", "not comparable", "took"];
    let mut rows = Vec::new();
    for array in &evaluation.arrays {
        for found in &array.verifications {
            let missing = match found.missing_drives.as_slice() {
                [] => "none".to_owned(),
                some => some.join(", "),
            };
            rows.push(vec![
                array.layout.clone(),
                missing,
                found.verified_bytes.to_string(),
                found.corrupt_bytes.to_string(),
                found.unreadable_bytes.to_string(),
                found.unknown_bytes.to_string(),
                duration(found.seconds),
            ]);
        }
    }
    if rows.is_empty() {
        page.push_str("<p>Nothing was compared.</p>\n");
        return;
    }
    let columns = columns.map(str::to_owned).to_vec();
    let shown = Table {
        title: "Bytes, after all measurements, failures and rebuilds".into(),
        groups: vec![ColumnGroup { title: String::new(), columns }],
        rows,
    };
    table(
        page,
        &shown,
        "The expected bytes of every block depend on the block, this run and the last write.",
        "names",
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::{example, quiet};

    #[test]
    fn page_is_self_contained_and_well_formed() {
        let page = report_html(&example());
        for outside in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!page.contains(outside), "the page refers to something outside: {outside}");
        }
        let mut open: Vec<&str> = Vec::new();
        let body = page.split_once("<body>").expect("a body").1;
        for tag in body.split('<').skip(1) {
            let tag = tag.split('>').next().expect("split gives at least one");
            let name = tag.trim_start_matches('/').split([' ', '\n']).next().expect("a name");
            if tag.ends_with('/') || tag.starts_with('!') || !name.chars().all(|c| c.is_ascii_alphanumeric())
            {
                continue;
            }
            if tag.starts_with('/') {
                if name != "body" && name != "html" {
                    assert_eq!(open.pop(), Some(name), "after {:?}", open.last());
                }
            } else {
                open.push(name);
            }
        }
        assert_eq!(open, Vec::<&str>::new());
    }

    #[test]
    fn every_figure_states_its_conditions() {
        let evaluation = example();
        let page = report_html(&evaluation);
        let said = escape(&conditions(&evaluation));
        assert!(said.contains("each drive paced at 200MB/s,20000iops (auto)"), "{said}");
        for figure in page.split("<figure>").skip(1) {
            let figure = figure.split("</figure>").next().unwrap();
            assert!(figure.contains(&said) && figure.contains("<svg") && figure.contains("aria-label="));
        }
        let tables = page.matches("<table").count();
        assert_eq!(page.matches("<caption>").count(), tables);
        assert!(page.matches(&said).count() >= tables + 8 - 3, "all but environment-free tables say it");
        assert_eq!(
            page.matches("<figure>").count(),
            3 + 3 + 3,
            "loads twice, and a rebuild per redundant layout"
        );
    }

    #[test]
    fn raw_data_round_trips_through_the_report() {
        let mut evaluation = example();
        evaluation.settings.drives = "</script><script>alert(1)</script>".into();
        let page = report_html(&evaluation);
        assert!(!page.contains("<script>alert"), "external text is escaped");
        let json = page.split_once("id=\"results\">").unwrap().1.split_once("</script>").unwrap().0;
        let back: Evaluation = serde_json::from_str(json).expect("valid JSON");
        assert_eq!(back.settings, evaluation.settings);
        assert_eq!(back.arrays.len(), evaluation.arrays.len());
    }

    #[test]
    fn the_json_has_the_keys_of_the_contract() {
        let json = serde_json::to_value(quiet()).unwrap();
        assert_eq!(json["output_version"], 1);
        let array = &json["arrays"][2];
        for key in [
            "layout",
            "drives",
            "columns",
            "interleave_bytes",
            "capacity_bytes",
            "rebuild_seconds",
            "rebuild_mb_per_s",
            "verified_bytes",
            "corrupt_bytes",
            "states",
        ] {
            assert!(!array[key].is_null(), "{key}");
        }
        for state in ["normal", "degraded", "rebuilding"] {
            for workload in ["seq_write", "seq_read", "mixed"] {
                let cell = &array["states"][state][workload];
                assert!(cell["mb_per_s"].is_f64() && cell["iops"].is_f64(), "{state} {workload}");
                for key in ["mean", "p50", "p99", "p999", "max"] {
                    assert!(cell["latency_us"][key].is_f64(), "{key}");
                }
                assert_eq!(cell["runs"].as_array().unwrap().len(), 3);
                assert_eq!(cell["ci95"].as_array().unwrap().len(), 2);
            }
        }
        assert!(
            json["arrays"][1]["rebuild_seconds"].is_null()
                && json["arrays"][1]["states"]["degraded"].is_null()
        );
    }

    #[test]
    fn empty_results_still_make_a_page() {
        let mut evaluation = quiet();
        evaluation.arrays.clear();
        evaluation.host = None;
        evaluation.environment = crate::Environment::default();
        let page = report_html(&evaluation);
        assert!(page.contains("Nothing was compared") && page.contains("not known"));
    }

    /// Writes the example's report to the path in `STRIPEWISE_EXAMPLE_REPORT`, for inspection.
    #[test]
    fn example_report_stays_small() {
        let page = report_html(&example());
        assert!(page.len() < 2_000_000, "{} bytes", page.len());
        if let Some(path) = std::env::var_os("STRIPEWISE_EXAMPLE_REPORT") {
            std::fs::write(path, page).expect("a place to write to");
        }
    }
}
