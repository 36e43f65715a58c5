//! Throughput and latency of a system over the depth of its queue, as one SVG that refers to
//! nothing.

use std::fmt::Write;

use super::{State, Workload, predict};
use crate::system::System;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const EDGE: f64 = 56.0;

/// The load at depths from 1 to 256.
pub fn depth_chart(system: &System, state: State, workload: &Workload) -> String {
    let at = |power: u32| {
        let load = Workload { depth: 1 << power, workers: 1, ..workload.clone() };
        let prediction = predict(system, state, &load);
        (prediction.mb_per_s, prediction.latency_us.mean / 1000.0)
    };
    let points: Vec<(f64, f64)> = (0..=8).map(at).collect();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    let x = |index: usize| EDGE + (WIDTH - 2.0 * EDGE) * index as f64 / 8.0;
    for index in 0..points.len() {
        let depth = 1 << index;
        let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"340\" text-anchor=\"middle\">{depth}</text>", x(index));
    }
    let rates: Vec<f64> = points.iter().map(|point| point.0).collect();
    let latencies: Vec<f64> = points.iter().map(|point| point.1).collect();
    line(&mut svg, &rates, "#1d4ed8", "MB/s", EDGE - 6.0, "end");
    line(&mut svg, &latencies, "#c2410c", "ms", WIDTH - EDGE + 6.0, "start");
    let name = system.name.replace('&', "&amp;").replace('<', "&lt;");
    let _ =
        writeln!(svg, "<text x=\"320\" y=\"20\" text-anchor=\"middle\">{name}: over depth</text>\n</svg>");
    svg
}

/// One curve with its own scale from zero.
fn line(svg: &mut String, values: &[f64], colour: &str, unit: &str, label_x: f64, anchor: &str) {
    let most = values.iter().copied().fold(1e-9, f64::max);
    let y = |value: f64| HEIGHT - EDGE - (HEIGHT - 2.0 * EDGE) * value / most;
    let points: Vec<String> = values
        .iter()
        .enumerate()
        .map(|(index, value)| {
            format!("{:.1},{:.1}", EDGE + (WIDTH - 2.0 * EDGE) * index as f64 / 8.0, y(*value))
        })
        .collect();
    let points = points.join(" ");
    let _ =
        writeln!(svg, "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>");
    for value in [0.0, most / 2.0, most] {
        let _ = writeln!(
            svg,
            "<text x=\"{label_x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{value:.4} {unit}</text>",
            y(value)
        );
    }
}
