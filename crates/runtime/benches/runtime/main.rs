//! What the runtime costs: nanoseconds per task switch, our drives against fio on the same files,
//! and whether registering files and buffers with the ring would pay.
//!
//! `cargo bench -p stripewise-runtime [-- --quick] [executors] [fio] [registration]`. Everything is
//! printed as a ratio of two sides measured in turn, pair by pair, so that other load on the
//! machine falls on both; the spread is that of the pairs. fio is needed for the comparison and is
//! named when absent.

mod against_fio;
mod executors;
mod files;
mod registration;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if !arguments.iter().any(|argument| argument == "--bench") {
        println!("run by `cargo bench`");
        return;
    }
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let chosen: Vec<&str> =
        arguments.iter().map(String::as_str).filter(|name| !name.starts_with("--")).collect();
    let wants = |name| chosen.is_empty() || chosen.contains(&name);
    if wants("executors") {
        executors::run();
    }
    if wants("fio") {
        against_fio::run(quick);
    }
    if wants("registration") {
        registration::run(quick);
    }
}

/// Median, lower and upper quartile of a few figures.
fn spread(figures: &[f64]) -> (f64, f64, f64) {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    (sorted[sorted.len() / 2], sorted[sorted.len() / 4], sorted[sorted.len() * 3 / 4])
}
