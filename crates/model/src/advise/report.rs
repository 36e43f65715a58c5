//! One page that needs nothing beside itself: the table, a Pareto chart, reasons, commands.

use std::fmt::Write;

use super::rank::terabytes;
use super::{Advice, Choice};
use crate::reliability::chance_per_year;

/// Choices whose commands are shown.
const BUILT: usize = 8;

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;\
color:#222;background:#fff}table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.3rem .6rem;\
border-bottom:1px solid #ccc}td.n,th.n{text-align:right}pre{background:#f4f4f4;padding:.6rem;overflow-x:auto}\
.soft{color:#666}summary h2{display:inline}svg text{font:12px system-ui,sans-serif;fill:currentColor}.axis{stroke:#888}.front{stroke:#27c;\
fill:none;stroke-width:1.5}.on{fill:#27c}.off{fill:#aaa}@media(prefers-color-scheme:dark){body{color:#ddd;\
background:#181818}pre{background:#242424}th,td{border-color:#444}}";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The page.
pub fn html(advice: &Advice, title: &str) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{0}</title>\n<style>{STYLE}\
         </style>\n</head>\n<body>\n<h1>{0}</h1>\n",
        escape(title)
    );
    table(&mut page, &advice.choices);
    if let Some(first) = advice.choices.first() {
        let _ = writeln!(
            page,
            "<p class=\"soft\">Half of such rates in published studies are within {:.0} % of the prediction, nine of \
             ten within {:.0} %. Rates nearer to each other than {:.0} % are called equal.</p>",
            first.rate_median_error_percent, first.rate_p90_error_percent, first.error_percent
        );
    }
    page += "<h2>Rate and capacity</h2>\n";
    pareto(&mut page, &advice.choices);
    if !advice.sensitivity.is_empty() {
        page += "<h2>What would change the first choice</h2>\n<ul>\n";
        for line in &advice.sensitivity {
            let _ = writeln!(page, "<li>{}</li>", escape(line));
        }
        page += "</ul>\n";
    }
    for choice in advice.choices.iter().filter(|choice| choice.rank == 1 || choice.fits).take(BUILT) {
        let open = if choice.rank == 1 { " open" } else { "" };
        let _ = writeln!(
            page,
            "<details{open}><summary><h2>How to build {}</h2></summary>",
            escape(&choice.name())
        );
        let (commands, caveats) = (&choice.commands, &choice.caveats);
        for (system, lines, caveats) in [
            ("Stripewise", &commands.stripewise, &caveats.stripewise),
            ("Linux md", &commands.mdadm, &caveats.mdadm),
            ("ZFS", &commands.zpool, &caveats.zpool),
            ("Storage Spaces", &commands.storage_spaces, &caveats.storage_spaces),
        ] {
            let _ = writeln!(page, "<h3>{system}</h3>");
            if !lines.is_empty() {
                let _ = writeln!(page, "<pre>{}</pre>", escape(&lines.join("\n")));
            }
            for caveat in caveats {
                let _ = writeln!(page, "<p class=\"soft\">{}</p>", escape(caveat));
            }
        }
        page += "</details>\n";
    }
    page += "<h2>Assumed</h2>\n<ul>\n";
    for line in &advice.assumptions {
        let _ = writeln!(page, "<li>{}</li>", escape(line));
    }
    page += "</ul>\n</body>\n</html>\n";
    page
}

fn table(page: &mut String, choices: &[Choice]) {
    *page += "<table>\n<tr><th class=\"n\">#</th><th>array</th><th class=\"n\">usable</th><th class=\"n\">normal MB/s</th>\
              <th class=\"n\">degraded</th><th class=\"n\">rebuilding</th><th class=\"n\">rebuild h</th>\
              <th class=\"n\">under load</th><th class=\"n\">data loss</th><th class=\"n\">price</th><th class=\"n\">price per TB</th>\
              <th>limited by</th><th>why</th></tr>\n";
    for choice in choices {
        let in_hours = |seconds: Option<f64>| {
            seconds.map_or_else(|| "–".to_owned(), |seconds| format!("{:.1}", seconds / 3600.0))
        };
        let (hours, loaded) = (in_hours(choice.rebuild_seconds), in_hours(choice.rebuild_under_load_seconds));
        let total = choice.cost.map_or_else(|| "–".to_owned(), |cost| format!("{cost:.0}"));
        let cost = choice.cost_per_tb.map_or_else(|| "–".to_owned(), |cost| format!("{cost:.2}"));
        let dominated = choice.dominated_by.map_or_else(String::new, |rank| {
            format!("; choice {rank} is as good or better in every respect")
        });
        let _ = writeln!(
            page,
            "<tr><td class=\"n\">{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{:.0}</td><td class=\"n\">\
             {:.0}</td><td class=\"n\">{:.0}</td><td class=\"n\">{hours}</td><td class=\"n\">{loaded}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{total}</td><td class=\"n\">{cost}</td><td>{}</td><td>{}{dominated}</td></tr>",
            choice.rank,
            escape(&choice.name()),
            terabytes(choice.usable_bytes),
            choice.normal.workload,
            choice.degraded.workload,
            choice.rebuilding.workload,
            chance_per_year(choice.loss_probability_per_year),
            escape(&choice.bottleneck),
            escape(&choice.reason)
        );
    }
    *page += "</table>\n";
}

/// Choices that no other beats in both rate and capacity, joined by a line.
fn pareto(page: &mut String, choices: &[Choice]) {
    const WIDTH: f64 = 720.0;
    const HEIGHT: f64 = 360.0;
    const LEFT: f64 = 60.0;
    const BOTTOM: f64 = 40.0;
    let fitting: Vec<&Choice> = choices.iter().filter(|choice| choice.fits).collect();
    let most =
        |of: &dyn Fn(&Choice) -> f64| fitting.iter().map(|choice| of(choice)).fold(1e-9, f64::max) * 1.1;
    let capacity = |choice: &Choice| choice.usable_bytes as f64 / 1e12;
    let (right, top) = (most(&capacity), most(&|choice| choice.normal.workload));
    let at = |choice: &Choice| {
        let x = LEFT + capacity(choice) / right * (WIDTH - LEFT - 20.0);
        let y = HEIGHT - BOTTOM - choice.normal.workload / top * (HEIGHT - BOTTOM - 20.0);
        (x, y)
    };
    let beaten = |choice: &Choice| {
        fitting.iter().any(|other| {
            let (rate, size) = (other.normal.workload, other.usable_bytes);
            rate >= choice.normal.workload
                && size >= choice.usable_bytes
                && (rate > choice.normal.workload || size > choice.usable_bytes)
        })
    };
    let _ = writeln!(
        page,
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Usable capacity and rate of each choice\">\n\
         <path class=\"axis\" fill=\"none\" d=\"M{LEFT} 20V{0}H{1}\"/>\n\
         <text x=\"{2}\" y=\"{3}\">usable TB, to {right:.1}</text>\n<text x=\"{LEFT}\" y=\"14\">MB/s, to {top:.0}</text>",
        HEIGHT - BOTTOM,
        WIDTH - 20.0,
        WIDTH - 140.0,
        HEIGHT - 12.0
    );
    let mut front: Vec<&Choice> = fitting.iter().copied().filter(|choice| !beaten(choice)).collect();
    front.sort_by(|a, b| capacity(a).total_cmp(&capacity(b)));
    let points: Vec<String> =
        front.iter().map(|choice| at(choice)).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = writeln!(page, "<polyline class=\"front\" points=\"{}\"/>", points.join(" "));
    for choice in &fitting {
        let (x, y) = at(choice);
        let class = if beaten(choice) { "off" } else { "on" };
        let _ = writeln!(
            page,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\"><title>{}</title></circle>\n\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            escape(&choice.name()),
            x + 8.0,
            y - 6.0,
            choice.rank
        );
    }
    *page += "</svg>\n<p class=\"soft\">Numbers are ranks. The line joins the choices that no other beats in both.</p>\n";
}
