//! Does torture notice? Each mutation of the engine (`stripewise_engine::mutation`) breaks one rule that keeps data right; a seed
//! known to show it must show it, and must be well without it. To look for such seeds anew:
//! `STRIPEWISE_TEST_RUNS=1000 cargo test --workspace --features stripewise-torture/mutations --test mutations -- --nocapture`.

use stripewise_torture::{Drawn, Failure, Mutation, Options, run};

/// What is broken, and a seed that shows it.
const FOUND_AT: [(Mutation, u64); 10] = [
    (Mutation::ReplayWithoutRedo, 1),
    (Mutation::ParityCoversAll, 90),
    (Mutation::ReleaseBeforeFlush, 2),
    (Mutation::ChecksumsAlwaysAgree, 116),
    (Mutation::CommitOnOneDrive, 1),
    (Mutation::AcknowledgeBeforeExclusion, 265),
    (Mutation::LockWithoutWaiting, 1),
    (Mutation::FrontierBeforeFlush, 11),
    (Mutation::StaleBeyondFrontier, 79),
    (Mutation::WriteOldArrayOnly, 3),
];

/// Seeds that could show it, up to a last one.
fn seeds(mutation: Mutation, last: u64) -> impl Iterator<Item = u64> {
    use Mutation::{AcknowledgeBeforeExclusion, FrontierBeforeFlush, StaleBeyondFrontier, WriteOldArrayOnly};
    let only = match mutation {
        // One of four converts volumes, another one has power go with a drive.
        FrontierBeforeFlush | StaleBeyondFrontier | WriteOldArrayOnly => Some(3),
        AcknowledgeBeforeExclusion => Some(1),
        _ => None,
    };
    (1..=last).filter(move |seed| only.is_none_or(|only| seed % 4 == only))
}

fn failures(mutation: Option<Mutation>, seed: u64) -> Vec<Failure> {
    run(seed, &Options { mutation, drawn: Drawn::BeforeTuning, ..Options::default() }).failures
}

#[test]
fn each_broken_rule_is_found_by_a_seed_known_for_it() {
    for (mutation, seed) in FOUND_AT {
        assert_eq!(failures(None, seed), [], "seed {seed} shows something else");
        assert!(!failures(Some(mutation), seed).is_empty(), "seed {seed} does not show {mutation:?}");
    }
}

#[test]
fn each_broken_rule_is_found_within_so_many_seeds() {
    let runs = std::env::var("STRIPEWISE_TEST_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(0);
    for (mutation, _) in FOUND_AT {
        let found = seeds(mutation, runs)
            .find_map(|seed| Some((seed, failures(Some(mutation), seed).into_iter().next()?)));
        match found {
            Some((seed, failure)) => println!("{mutation:?}: seed {seed}, {}", failure.promise),
            None => assert_eq!(runs, 0, "{mutation:?} is not found by seeds 1 to {runs}"),
        }
    }
}
