//! Many seeds, each the same every time, and proof that the judge finds what is broken.

use std::ops::Range;

use stripewise_torture::{Coverage, Options, Sabotage, run};

fn keep_every_promise(seeds: Range<u64>) -> Coverage {
    let mut coverage = Coverage::default();
    for seed in seeds {
        let report = run(seed, &Options::default());
        assert!(report.failures.is_empty(), "{:#?}", report.failures);
        coverage.add(&report.coverage);
    }
    coverage
}

/// A hundred seeds, ten a test.
macro_rules! hundred {
    ($($name:ident $first:expr,)+) => {
        $(
            #[test]
            fn $name() {
                let coverage = keep_every_promise($first..$first + 10);
                // A harness that does nothing finds nothing.
                assert!(coverage.power_cuts > 0 && coverage.drive_losses > 0, "{coverage:?}");
            }
        )+
    };
}

hundred! {
    seeds_from_1_keep_every_promise 1,
    seeds_from_11_keep_every_promise 11,
    seeds_from_21_keep_every_promise 21,
    seeds_from_31_keep_every_promise 31,
    seeds_from_41_keep_every_promise 41,
    seeds_from_51_keep_every_promise 51,
    seeds_from_61_keep_every_promise 61,
    seeds_from_71_keep_every_promise 71,
    seeds_from_81_keep_every_promise 81,
    seeds_from_91_keep_every_promise 91,
}

#[test]
fn a_seed_is_the_same_run_every_time() {
    for seed in 1000..1006 {
        let (first, again) = (run(seed, &Options::default()), run(seed, &Options::default()));
        assert_eq!(first, again, "seed {seed}");
        assert_ne!(first.trace_hash, run(seed + 100, &Options::default()).trace_hash);
    }
}

/// True if one of some seeds shows one of these broken.
fn found(sabotage: Sabotage, promises: &[&str]) -> bool {
    let options = Options { sabotage: Some(sabotage), ..Options::default() };
    let shows =
        |seed: u64| run(seed, &options).failures.into_iter().any(|f| promises.contains(&f.promise.as_str()));
    (1..=40).any(shows)
}

#[test]
fn drives_that_ignore_flushes_are_found() {
    assert!(found(Sabotage::IgnoredFlushes, &["flushed-data-survives"]));
}

#[test]
fn data_changed_behind_the_engines_back_are_found() {
    // With checksums they are refused.
    assert!(found(Sabotage::Rot, &["nothing-refused"]) && found(Sabotage::Rot, &["no-wrong-bytes"]));
}

#[test]
fn writes_that_were_never_done_are_found() {
    assert!(found(Sabotage::LostWrites, &["flushed-data-survives", "nothing-refused"]));
}
