//! Prints how easily torture finds each mutation of the engine: how many seeds of its lives show
//! it, the first of them, and the time that a seed takes. With names: these only. `--clean` runs
//! each kind of lives without a mutation. Needs debug assertions:
//! `cargo run -p stripewise-torture --example mutants -- [--clean] [--seeds N] [NAME…]`

use std::time::Instant;

use stripewise_torture::{Focus, Mutation, Options, run};

fn main() {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let mut seeds = 64;
    if let Some(at) = words.iter().position(|word| word == "--seeds") {
        seeds = words[at + 1].parse().expect("a number of seeds");
        words.drain(at..at + 2);
    }
    if words.iter().any(|word| word == "--clean") {
        for focus in Focus::ALL {
            report(&format!("{focus:?}"), seeds, &Options { focus: Some(*focus), ..Options::default() });
        }
        return;
    }
    for mutation in
        Mutation::ALL.iter().copied().filter(|mutation| words.is_empty() || words.contains(&mutation.name()))
    {
        let focus = Focus::of(mutation);
        report(&mutation.name(), seeds, &Options { mutation: Some(mutation), focus, ..Options::default() });
    }
}

fn report(name: &str, seeds: u64, options: &Options) {
    let begin = Instant::now();
    let mut found = Vec::new();
    let mut promises = Vec::new();
    for seed in 1..=seeds {
        if let Some(failure) = run(seed, options).failures.first() {
            found.push(seed);
            promises.push(failure.promise.clone());
        }
    }
    let each_ms = begin.elapsed().as_millis() as u64 / seeds;
    let first = found.first().map_or("-".to_owned(), u64::to_string);
    promises.sort();
    promises.dedup();
    println!(
        "{name:<32} {:>3} of {seeds}, first {first:>3}, {each_ms:>4} ms a seed: {}",
        found.len(),
        promises.join(" ")
    );
    if found.len() < 9 {
        println!("{:<32} {found:?}", "");
    }
}
