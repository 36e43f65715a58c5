//! Does torture notice? Each mutation of the engine (`stripewise_engine::mutation`) breaks one rule
//! that keeps data right; a seed known to show it must show it, and must be well without it. To
//! look for such seeds again:
//! `cargo test --workspace --features stripewise-torture/mutations --test mutations -- --nocapture`
//! with `STRIPEWISE_TEST_RUNS=1000`, and with `STRIPEWISE_TEST_MUTATIONS=NAME,NAME` for some of
//! them.

use stripewise_torture::{Drawn, Failure, Mutation, Options, run};

/// What is broken, and a seed that shows it, drawn as it was then.
const FOUND_AT: [(Mutation, Drawn, u64); 30] = [
    (Mutation::ReplayWithoutRedo, Drawn::BeforeTuning, 1),
    (Mutation::ParityCoversAll, Drawn::BeforeTuning, 73),
    (Mutation::ReleaseBeforeFlush, Drawn::BeforeTuning, 2),
    (Mutation::ChecksumsAlwaysAgree, Drawn::BeforeTuning, 270),
    (Mutation::CommitOnOneDrive, Drawn::BeforeTuning, 1),
    (Mutation::AcknowledgeBeforeExclusion, Drawn::BeforeTuning, 265),
    (Mutation::LockWithoutWaiting, Drawn::BeforeTuning, 1),
    (Mutation::FrontierBeforeFlush, Drawn::BeforeTuning, 19),
    (Mutation::StaleBeyondFrontier, Drawn::BeforeTuning, 363),
    (Mutation::WriteOldArrayOnly, Drawn::BeforeTuning, 3),
    (Mutation::RefusedFlushForgotten, Drawn::Now, 414),
    (Mutation::MapPageAtOnePlace, Drawn::Now, 110),
    (Mutation::OwnDriveTwice, Drawn::Now, 22),
    (Mutation::RolledBackDriveCounts, Drawn::Now, 3),
    (Mutation::ShrinkOverPending, Drawn::Now, 104),
    (Mutation::FlushErrorDropped, Drawn::Now, 84),
    (Mutation::WrittenBeforeFlush, Drawn::Now, 256),
    (Mutation::MissedWriteNotNoted, Drawn::Now, 288),
    (Mutation::MoveToOldPlaceOnly, Drawn::Now, 39),
    (Mutation::DiscardKeepsRecords, Drawn::Now, 18),
    (Mutation::JournalOnOneDrive, Drawn::Now, 1),
    (Mutation::FreedAtOnce, Drawn::Now, 18),
    (Mutation::ResyncComparesNothing, Drawn::Now, 46),
    (Mutation::LostBlocksNotRecorded, Drawn::Now, 246),
    (Mutation::ForceForgotten, Drawn::Now, 5),
    (Mutation::LockOneByOne, Drawn::Now, 76),
    (Mutation::JournalNotDurable, Drawn::Now, 6),
    (Mutation::FirstStretchOnly, Drawn::Now, 88),
    (Mutation::WriteBeforeDirtyMark, Drawn::Now, 74),
    (Mutation::RebuiltBeforeFlush, Drawn::Now, 174),
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

fn failures(mutation: Option<Mutation>, drawn: Drawn, seed: u64) -> Vec<Failure> {
    run(seed, &Options { mutation, drawn, ..Options::default() }).failures
}

#[test]
fn each_mutation_is_found_by_its_known_seed() {
    let mut wrong = Vec::new();
    for (mutation, drawn, seed) in FOUND_AT {
        let without = failures(None, drawn, seed);
        if !without.is_empty() {
            wrong.push(format!("seed {seed} shows something else than {mutation:?}: {without:?}"));
        } else if failures(Some(mutation), drawn, seed).is_empty() {
            wrong.push(format!("seed {seed} does not show {mutation:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The first seed that shows a mutation and is well without it.
fn first_seed(mutation: Mutation, drawn: Drawn, last: u64) -> Option<(u64, String)> {
    seeds(mutation, last).find_map(|seed| {
        let failure = failures(Some(mutation), drawn, seed).into_iter().next()?;
        failures(None, drawn, seed).is_empty().then(|| (seed, failure.promise.to_string()))
    })
}

#[test]
fn each_mutation_is_found_within_the_seed_limit() {
    let runs = std::env::var("STRIPEWISE_TEST_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(0);
    let drawn = |mutation: &Mutation| {
        let known = FOUND_AT.iter().find(|(known, ..)| known == mutation);
        known.map_or(Drawn::Now, |(_, drawn, _)| *drawn)
    };
    let names = std::env::var("STRIPEWISE_TEST_MUTATIONS").unwrap_or_default();
    let is_asked = |mutation: &&Mutation| {
        names.is_empty() || names.split(',').any(|name| Mutation::named(name) == Some(**mutation))
    };
    let missed: Vec<&Mutation> = Mutation::ALL
        .iter()
        .filter(is_asked)
        .filter(|mutation| match first_seed(**mutation, drawn(mutation), runs) {
            Some((seed, promise)) => {
                println!("{mutation:?}: seed {seed}, {promise}");
                false
            }
            None => true,
        })
        .collect();
    assert!(runs == 0 || missed.is_empty(), "not found by seeds 1 to {runs}: {missed:?}");
}
