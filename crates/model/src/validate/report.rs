//! The report of a validation: tables in Markdown, and a chart of predicted over published.

use std::fmt::Write;

use super::{Answer, Finding, Halves, LeftOut, TableSummary, Verdict};
use crate::system::{Catalogue, How};

fn percent(value: f64) -> String {
    if value > 9999.0 { "none".into() } else { format!("{value:.1}") }
}

/// Errors on rows that numbers were not fitted to.
#[derive(Clone, Copy)]
pub struct Checks<'a> {
    /// By study, on a random half.
    pub halves: &'a [(String, Halves)],
    /// By study, on systems and layouts left out.
    pub left_out: &'a [LeftOut],
}

/// The document; `chart` is where the chart lies, as the document names it.
pub fn markdown(
    catalogue: &Catalogue,
    answers: &[Answer],
    tables: &[TableSummary],
    checks: Checks,
    findings: &[Finding],
    chart: &str,
) -> String {
    let mut text = String::from(
        "# How near the predictions come\n\n\
         Written by `stripewise model validate --report docs/validation.md`. Every measured row of the published\n\
         studies is predicted by the systems of the catalogue. The error is exp|ln(predicted/published)| − 1; rows\n\
         without an answer count as the worst. Pairs are configurations of one test that lie more than 15 % apart\n\
         in print, and the share that comes out in the same order. Of the rows of study 001 a third are counts\n\
         that PostMark's rules give, which is why its median is small.\n\n",
    );
    let _ = writeln!(text, "![Predicted over published]({chart})\n");
    text += "| study | table | rows | unanswered | median % | p90 % | pairs in order % |\n";
    text += "|---|---|---:|---:|---:|---:|---:|\n";
    for TableSummary { study, table, summary } in tables {
        let table = if table.is_empty() { "**all**" } else { table };
        let pairs = summary.pairs_in_order_percent.map_or_else(String::new, |pairs| format!("{pairs:.1}"));
        let (median, p90) = (percent(summary.median_error_percent), percent(summary.p90_error_percent));
        let _ = writeln!(
            text,
            "| {study} | {table} | {} | {} | {median} | {p90} | {pairs} |",
            summary.rows, summary.unanswered
        );
    }
    let cpu = answers.iter().filter(|answer| answer.metric.contains("cpu"));
    let apart = cpu.filter_map(|answer| Some((answer.predicted? - answer.published).abs()));
    let (rows, most) = apart.fold((0, 0.0), |(rows, most): (usize, f64), one| (rows + 1, most.max(one)));
    if rows > 0 {
        let _ = writeln!(
            text,
            "\nThe {rows} rows of processor time are at most {most:.1} points of percent off."
        );
    }
    text += "\n## Rows that were not fitted\n\n\
             Numbers that are fitted start off their places by a quarter, are fitted to a random half of the rows,\n\
             and predict the other half. Study 004 has 63 rows a half: its median on the other half moves between\n\
             5.9 and 8.2 with the choice (`--seed`).\n\n\
             | study | fitted half: median %, p90 % | other half: median %, p90 % |\n|---|---|---|\n";
    for (study, half) in checks.halves {
        let _ = writeln!(
            text,
            "| {study} | {}, {} | {}, {} |",
            percent(half.fitted_median_percent),
            percent(half.fitted_p90_percent),
            percent(half.other_median_percent),
            percent(half.other_p90_percent)
        );
    }
    left_out(checks.left_out, &mut text);
    let fitted = catalogue.fitted();
    let _ = writeln!(text, "\n## The {} fitted numbers\n", fitted.len());
    text += "| part | number | value | unit | fitted to |\n|---|---|---:|---|---|\n";
    for (component, name) in &fitted {
        let parameter = &catalogue.component[component].parameters[name];
        let (value, unit, source) = (parameter.value, &parameter.unit, &parameter.source);
        let _ = writeln!(text, "| {component} | {name} | {value} | {unit} | {source} |");
    }
    text += "\n## Numbers read off one published row\n\n| part | number | value | unit | source |\n|---|---|---:|---|---|\n";
    for (component, parts) in &catalogue.component {
        for (name, parameter) in parts.parameters.iter().filter(|(_, one)| one.how == How::Measured) {
            let (value, unit, source) = (parameter.value, &parameter.unit, &parameter.source);
            let _ = writeln!(text, "| {component} | {name} | {value} | {unit} | {source} |");
        }
    }
    text +=
        "\n## Findings of the studies\n\n| finding | predictions | figures, or why not |\n|---|---|---|\n";
    for finding in findings {
        let verdict = match finding.verdict {
            Verdict::Holds => "holds",
            Verdict::DoesNotHold => "**does not hold**",
            Verdict::CannotBeModelled => "cannot be modelled",
        };
        let _ = writeln!(text, "| {} | {verdict} | {} |", finding.id, finding.why);
    }
    text += "\n## Causes that the model lacks\n\n| finding | cause |\n|---|---|\n";
    for finding in findings {
        if let Some(cause) = finding.missing_cause {
            let _ = writeln!(text, "| {} | {cause} |", finding.id);
        }
    }
    text += "\n## Rows that err by more than half\n\n| study | row | figure | published | predicted | error % |\n";
    text += "|---|---|---|---:|---:|---:|\n";
    let far = answers.iter().filter(|answer| answer.distance() > 1.5_f64.ln());
    for answer in far {
        let predicted = answer.predicted.map_or_else(|| "none".into(), |value| format!("{value:.3}"));
        let error = answer.error_percent.map_or_else(|| "none".into(), |error| format!("{error:.0}"));
        let Answer { study, table, row, metric, published, .. } = answer;
        let _ =
            writeln!(text, "| {study} | {table}: {row} | {metric} | {published} | {predicted} | {error} |");
    }
    text
}

/// Systems and layouts that were left out, each on a line below the study.
fn left_out(left_out: &[LeftOut], text: &mut String) {
    if left_out.is_empty() {
        return;
    }
    *text += "\n## Systems and layouts that were not fitted\n\n\
              Each system of a study, then each layout, is left out in turn. The fitted numbers of the\n\
              study start a quarter off their places, are fitted to the rows of the other systems or\n\
              layouts, and predict the rows left out. A number that none of the other rows depends on\n\
              cannot be fitted to them: it is forgotten, and the model's default takes its place, as for a\n\
              part of which nothing was measured. *By defaults* counts the rows of which a part has such a\n\
              number. A system is a controller or software with its kind of drive; in study 001 there is\n\
              one, so none can be left out.\n\n\
              | study | left out | rows | by defaults | median %, p90 % | of the same rows, all fitted |\n\
              |---|---|---:|---:|---|---|\n";
    let both = |median: Option<f64>, p90: Option<f64>| match (median, p90) {
        (Some(median), Some(p90)) => format!("{}, {}", percent(median), percent(p90)),
        _ => "none".to_owned(),
    };
    for one in left_out {
        let LeftOut { study, one_of, rows, rows_with_defaults, .. } = one;
        let errors = both(one.median_error_percent, one.p90_error_percent);
        let fitted = both(one.fitted_median_percent, one.fitted_p90_percent);
        let name = one_of.name();
        let _ = writeln!(
            text,
            "| {study} | **each {name}** | {rows} | {rows_with_defaults} | {errors} | {fitted} |"
        );
        for group in &one.groups {
            let errors = both(Some(group.median_error_percent), Some(group.p90_error_percent));
            let (name, rows, by_defaults) = (&group.name, group.rows, group.rows_with_defaults);
            let _ = writeln!(text, "| {study} | {name} | {rows} | {by_defaults} | {errors} | |");
        }
    }
    let defaults: Vec<String> = left_out
        .iter()
        .flat_map(|one| one.groups.iter().map(move |group| (one, group)))
        .filter(|(_, group)| !group.defaults.is_empty())
        .map(|(one, group)| format!("- {} without {}: {}", one.study, group.name, group.defaults.join(", ")))
        .collect();
    if !defaults.is_empty() {
        let _ = writeln!(text, "\nNumbers that had the model's default:\n\n{}", defaults.join("\n"));
    }
}

const COLOURS: [(&str, &str); 4] =
    [("000", "#c2410c"), ("001", "#15803d"), ("002", "#1d4ed8"), ("004", "#7e22ce")];

/// Predicted over published, both by powers of ten, as one SVG that refers to nothing.
pub fn chart(answers: &[Answer]) -> String {
    const SIZE: f64 = 640.0;
    const EDGE: f64 = 50.0;
    let place = |value: f64| ((value.max(0.01).log10() + 2.0) / 10.0).clamp(0.0, 1.0) * (SIZE - 2.0 * EDGE);
    let (x, y) = (|value: f64| EDGE + place(value), |value: f64| SIZE - EDGE - place(value));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {SIZE} {SIZE}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{SIZE}\" height=\"{SIZE}\" fill=\"white\"/>\n"
    );
    for power in -2..=8 {
        let value = 10f64.powi(power);
        let (at_x, at_y) = (x(value), y(value));
        let (low, high) = (EDGE, SIZE - EDGE);
        let _ = writeln!(
            svg,
            "<path d=\"M{at_x:.1} {low}V{high}M{low} {at_y:.1}H{high}\" stroke=\"#ddd\" fill=\"none\"/>\
             <text x=\"{at_x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">1e{power}</text>\
             <text x=\"{:.1}\" y=\"{at_y:.1}\" text-anchor=\"end\">1e{power}</text>",
            high + 16.0,
            low - 4.0
        );
    }
    let (low, high) = (0.01, 1e8);
    let _ = writeln!(
        svg,
        "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" stroke=\"#333\" fill=\"none\"/>",
        x(low),
        y(low),
        x(high),
        y(high)
    );
    for answer in answers {
        let Some(predicted) = answer.predicted else { continue };
        let colour =
            COLOURS.iter().find(|(study, _)| *study == answer.study).map_or("#333", |(_, colour)| colour);
        let (at_x, at_y) = (x(answer.published), y(predicted));
        let _ = writeln!(
            svg,
            "<circle cx=\"{at_x:.1}\" cy=\"{at_y:.1}\" r=\"2.5\" fill=\"{colour}\" fill-opacity=\"0.5\"/>"
        );
    }
    for (index, (study, colour)) in COLOURS.iter().enumerate() {
        let at_y = EDGE + 16.0 * index as f64;
        let _ = writeln!(svg, "<text x=\"60\" y=\"{at_y}\" fill=\"{colour}\">study {study}</text>");
    }
    let _ = writeln!(svg, "<text x=\"320\" y=\"{}\" text-anchor=\"middle\">published</text>", SIZE - 8.0);
    svg += "<text x=\"12\" y=\"320\" transform=\"rotate(-90 12 320)\" text-anchor=\"middle\">predicted</text>\n</svg>\n";
    svg
}
