use stripewise_torture::*;
fn main() {
    let mut args = std::env::args().skip(1);
    let first: u64 = args.next().unwrap().parse().unwrap();
    let runs: u64 = args.next().unwrap().parse().unwrap();
    if runs == 1 {
        let report = run(first, &Options { keep_log: true, ..Options::default() });
        for l in &report.log {
            println!("{l}");
        }
        println!("{:#?}", report.failures);
        return;
    }
    let t = std::time::Instant::now();
    let summary = run_many(first, runs, 2, &Options::default(), |_| true);
    for f in &summary.failures {
        println!("{} {}: {}", f.seed, f.promise, &f.detail.chars().take(700).collect::<String>());
    }
    println!(
        "{:?} {} failures, {:.1}/s",
        summary.coverage,
        summary.failures.len(),
        runs as f64 / t.elapsed().as_secs_f64()
    );
}
