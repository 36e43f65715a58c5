//! Benchmarks of the runtime: nanoseconds per task switch, file drives against fio on the same
//! files, and the benefit of registering files and buffers with the ring.
//!
//! `cargo bench -p stripewise-runtime [-- --quick] [executors] [fio] [registration]`. Comparisons
//! are ratios of two sides measured in turn, pair by pair, so that other load on the machine
//! affects both; the spread is that of the pairs. The comparison with fio is skipped with a message
//! if fio is not installed.

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
