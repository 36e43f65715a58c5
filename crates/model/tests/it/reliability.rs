//! Estimates against closed formulas, against a published model, and against themselves.

use stripewise_layout::LayoutSpec;
use stripewise_model::advise::{Kind, parse_use};
use stripewise_model::reliability::{
    Asked, Batch, Estimate, HOURS_PER_YEAR, Law, Question, Repairs, Rounds, Spares, Stop, Structure, Sums,
    Wishes, estimate, predicted_rebuild, run_blocks,
};

fn textbook(layout: &str, drives: usize) -> Question {
    Question {
        structure: Structure::of(&layout.parse::<LayoutSpec>().unwrap(), drives).unwrap(),
        mission_hours: 10.0 * HOURS_PER_YEAR,
        failure: Law::exponential(1e6),
        restore: Law::exponential(24.0),
        repairs: Repairs::OneAtATime,
        replacement: None,
        spares: 0,
        latent_hours: None,
        scrub: None,
        batch: None,
        read_error: 0.0,
        sector_bytes: 4096.0,
    }
}

fn published(scrub_scale: Option<f64>) -> Question {
    Question {
        failure: Law::weibull(1.12, 461_386.0),
        restore: Law::Weibull { location: 6.0, scale: 12.0, shape: 2.0 },
        latent_hours: Some(9259.0),
        scrub: scrub_scale.map(|scale| Law::Weibull { location: 6.0, scale, shape: 3.0 }),
        ..textbook("raid5", 8)
    }
}

/// As good as `trials` trials make it.
fn answer_of(question: &Question, seed: u64, trials: u64) -> Estimate {
    let stop = Stop {
        precision: 0.0,
        fine_precision: 0.0,
        easy_drive_years: 0.0,
        most_trials: trials,
        threads: None,
    };
    estimate(question, 1e12, seed, &stop, &mut |_, _| true).unwrap()
}

/// Within two percent, and within the interval that the estimate itself gives, widened.
fn near(what: &str, estimate: &Estimate, mttdl_hours: f64) {
    let figure = estimate.mttdl_hours.expect("something was lost");
    let error = figure.mean / mttdl_hours - 1.0;
    let half = (figure.ci95[1] - figure.ci95[0]) / 2.0 / figure.mean;
    assert!(error.abs() < 0.02 && error.abs() < 2.5 * half, "{what}: {error:+.4}, interval ±{half:.4}");
    assert!(half < 0.015, "{what}: ±{half:.4}");
}

#[test]
fn raid5_loses_data_as_often_as_the_formula_says() {
    near("raid5", &answer_of(&textbook("raid5", 8), 1, 200_000), 744_315_476.0);
}

#[test]
fn raid6_loses_data_as_often_as_the_formula_says() {
    near("raid6", &answer_of(&textbook("raid6", 8), 2, 400_000), 5.16873e12);
}

#[test]
fn mirrors_lose_data_as_often_as_the_formula_says() {
    near("raid10", &answer_of(&textbook("raid10", 8), 3, 400_000), 5.20871e9);
    near("raid1", &answer_of(&textbook("raid1", 8), 4, 400_000), 5.20871e9);
}

#[test]
fn a_published_model_of_latent_errors_is_reproduced() {
    for (scrub, low, high) in [
        (Some(168.0), 134.0, 140.0),
        (Some(48.0), 43.0, 47.0),
        (Some(336.0), 243.0, 251.0),
        (None, 1196.0, 1214.0),
    ] {
        let figure = answer_of(&published(scrub), 5, 250_000).latent_events_per_1000;
        assert!(figure.mean >= low && figure.mean <= high, "scrub {scrub:?}: {figure:?}");
        assert!(figure.ci95[1] - figure.ci95[0] < 0.012 * figure.mean, "scrub {scrub:?}: {figure:?}");
    }
}

#[test]
fn the_seed_alone_decides_the_answer() {
    let question = Question {
        spares: 1,
        replacement: Some(Law::Uniform { from: 12.0, to: 72.0 }),
        batch: Some(Batch { share: 0.1, factor: 10.0 }),
        ..published(Some(168.0))
    };
    let on = |threads, seed| {
        let stop = Stop { precision: 0.02, easy_drive_years: 0.0, threads: Some(threads), ..Stop::default() };
        estimate(&question, 1e12, seed, &stop, &mut |_, _| true).unwrap()
    };
    let one = on(1, 7);
    assert_eq!(one, on(3, 7), "the same on any number of threads");
    assert_ne!(one, on(1, 8), "another seed, another sample");
}

#[test]
fn blocks_made_apart_give_the_same_answer() {
    let question = published(Some(168.0));
    let stop = Stop { precision: 0.01, easy_drive_years: 0.0, ..Stop::default() };
    let mut rounds = Rounds::new(&question, &stop).unwrap();
    let mut number = 0;
    while let Some(blocks) = rounds.next_blocks() {
        // Each block alone, the last first, and carried as bytes.
        let alone = |block| {
            let sums = run_blocks(&question, 1e12, 7, block..block + 1, &|| true).unwrap();
            sums.expect("not stopped")[0].to_bytes()
        };
        let mut made: Vec<_> = blocks.rev().map(alone).collect();
        made.reverse();
        rounds.add(made.iter().map(Sums::from_bytes).collect());
        number += 1;
    }
    assert!(number > 1, "{number} rounds");
    let whole = estimate(&question, 1e12, 7, &stop, &mut |_, _| true).unwrap();
    assert_eq!(rounds.answer(&question), whole);
}

/// Solves the Markov chain of missing drives: mean time until more are missing than tolerated.
fn chain_mttdl(
    drives: usize,
    tolerance: usize,
    failure_hours: f64,
    restore_hours: f64,
    parallel: bool,
) -> f64 {
    // With e(i) the mean time from i missing drives to i + 1: e(i) = (1 + repair(i) e(i - 1)) /
    // fail(i).
    let mut total = 0.0;
    let mut before = 0.0;
    for missing in 0..=tolerance {
        let fails = (drives - missing) as f64 / failure_hours;
        let repairs = if parallel { missing as f64 } else { missing.min(1) as f64 } / restore_hours;
        before = (1.0 + repairs * before) / fails;
        total += before;
    }
    total
}

#[test]
fn serial_and_parallel_repairs_match_the_markov_chain() {
    for (layout, drives, tolerance, parallel) in
        [("raid7", 9, 3, false), ("raid6", 6, 2, true), ("mirror3", 3, 2, false), ("raid5", 4, 1, true)]
    {
        let repairs = if parallel { Repairs::Parallel } else { Repairs::OneAtATime };
        let question = Question { repairs, ..textbook(layout, drives) };
        let wanted = chain_mttdl(drives, tolerance, 1e6, 24.0, parallel);
        let figure = answer_of(&question, 13, 60_000).mttdl_hours.unwrap();
        let error = figure.mean / wanted - 1.0;
        assert!(error.abs() < 0.06, "{layout}: {:e} against {wanted:e}, {error:+.4}", figure.mean);
    }
}

#[test]
fn frequent_failures_match_the_markov_chain() {
    // Drives that last 500 hours: a second failure within a rebuild is as likely as not.
    let question =
        Question { failure: Law::exponential(500.0), mission_hours: 100_000.0, ..textbook("raid6", 8) };
    let wanted = chain_mttdl(8, 2, 500.0, 24.0, false);
    let answer = answer_of(&question, 17, 512);
    let figure = answer.mttdl_hours.unwrap();
    // After a loss the array is restored before it counts again, which the chain leaves out.
    let error = figure.mean / wanted - 1.0;
    assert!(error > 0.0 && error < 0.15, "{} against {wanted}", figure.mean);
    // It is lost for certain. What is split off makes the estimate scatter a little.
    let loss = answer.loss_probability;
    assert!(loss.mean > 0.98 && loss.ci95[1] > 0.999_999 && loss.ci95[1] <= 1.0, "{loss:?}");
}

#[test]
fn without_redundancy_the_first_failure_loses_data() {
    let question = textbook("raid0", 4);
    let wanted = -(-4.0 * question.mission_hours / 1e6f64).exp_m1();
    let answer = answer_of(&question, 19, 50_000);
    assert!((answer.loss_probability.mean / wanted - 1.0).abs() < 0.01, "{:?}", answer.loss_probability);
    // With latent errors of the same rate the array is lost twice as fast.
    let question = Question { latent_hours: Some(1e6), ..question };
    let wanted = -(-8.0 * question.mission_hours / 1e6f64).exp_m1();
    let answer = answer_of(&question, 19, 50_000);
    assert!((answer.loss_probability.mean / wanted - 1.0).abs() < 0.01, "{:?}", answer.loss_probability);
}

#[test]
fn rebuilds_and_hours_degraded_follow_from_failures() {
    let answer = answer_of(&textbook("raid60", 12), 23, 50_000);
    let failures = 12.0 * 87_600.0 / 1e6;
    assert!((answer.rebuilds.mean / failures - 1.0).abs() < 0.01, "{:?}", answer.rebuilds);
    assert!((answer.replacement_drives.mean / failures - 1.0).abs() < 0.01);
    let hours = failures * 24.0 / 10.0;
    assert!(
        (answer.hours_degraded_per_year.mean / hours - 1.0).abs() < 0.02,
        "{:?}",
        answer.hours_degraded_per_year
    );
}

#[test]
fn spares_and_scrubs_lower_risk_bad_batches_raise_it() {
    let base = Question { replacement: Some(Law::Fixed(72.0)), ..published(Some(336.0)) };
    let risk = |question: Question| answer_of(&question, 29, 10_000).loss_probability.mean;
    let raid6 = Question { structure: textbook("raid6", 8).structure, ..base.clone() };
    let plain = risk(raid6.clone());
    assert!(risk(Question { spares: 1, ..raid6.clone() }) < 0.7 * plain, "a spare");
    assert!(risk(Question { scrub: None, ..raid6.clone() }) > 2.0 * plain, "no scrubs");
    assert!(
        risk(Question { batch: Some(Batch { share: 0.1, factor: 10.0 }), ..raid6.clone() }) > 1.5 * plain,
        "bad batches"
    );
    assert!(risk(Question { structure: textbook("raid7", 8).structure, ..base.clone() }) < 0.1 * plain);
    assert!(risk(base) > 10.0 * plain, "raid5");
}

#[test]
fn an_odd_mirror_ring_fails_with_two_neighbours() {
    // Five drives in a ring: of the four that are left two are neighbours of the one that failed.
    let ring = answer_of(&textbook("raid10", 5), 31, 200_000).mttdl_hours.unwrap().mean;
    let wanted = (1.0 / 24.0) / (5.0 * 2.0 * 1e-12);
    assert!((ring / wanted - 1.0).abs() < 0.03, "{ring:e} against {wanted:e}");
}

/// Mean time until two arrays that mirror each other are both lost, each of `drives` drives that
/// may lack `tolerance`; one repair at a time in each, and a lost array made again as a whole.
fn mirrored_mttdl(drives: usize, tolerance: usize, failure_hours: f64, restore_hours: f64) -> f64 {
    let (fail, repair) = (1.0 / failure_hours, 1.0 / restore_hours);
    // States 0 ..= tolerance: number of missing drives. Above: lost, with tolerance + 1 repairs to
    // go, down to one.
    let states = 2 * (tolerance + 1);
    let lost = |state: usize| state > tolerance;
    let next = |state: usize| -> Vec<(usize, f64)> {
        if lost(state) {
            return vec![((state + 1) % states, repair)];
        }
        let worse = (state + 1, (drives - state) as f64 * fail);
        if state == 0 { vec![worse] } else { vec![worse, (state - 1, repair)] }
    };
    // Hours from each pair of states: (rates) hours - sum of rate * hours of the next = 1.
    let size = states * states;
    let mut rows = vec![vec![0.0; size + 1]; size];
    for (index, row) in rows.iter_mut().enumerate() {
        let (one, other) = (index / states, index % states);
        if lost(one) && lost(other) {
            row[index] = 1.0;
            continue;
        }
        row[size] = 1.0;
        let moves = next(one).into_iter().map(|(to, rate)| (to * states + other, rate));
        for (to, rate) in moves.chain(next(other).into_iter().map(|(to, rate)| (one * states + to, rate))) {
            row[index] += rate;
            row[to] -= rate;
        }
    }
    // Elimination from the last state up leaves the first one's hours. No pivoting: rates dominate
    // rows.
    for from in (1..size).rev() {
        let pivot = rows[from].clone();
        for row in &mut rows[..from] {
            let factor = row[from] / pivot[from];
            row.iter_mut().zip(&pivot).for_each(|(value, pivot)| *value -= factor * pivot);
        }
    }
    rows[0][size] / rows[0][0]
}

#[test]
fn stacked_arrays_match_the_markov_chain() {
    let spec = |text: &str| text.parse::<LayoutSpec>().unwrap();
    for (inner, drives, tolerance) in [("raid0", 2, 0), ("raid5", 3, 1)] {
        let structure = Structure::stacked(&spec("raid1"), 2, &spec(inner), drives).unwrap();
        let question = Question { structure, failure: Law::exponential(300_000.0), ..textbook("raid1", 2) };
        let wanted = mirrored_mttdl(drives, tolerance, 300_000.0, 24.0);
        let figure = answer_of(&question, 37, 30_000).mttdl_hours.unwrap();
        let error = figure.mean / wanted - 1.0;
        assert!(error.abs() < 0.08, "{inner}: {:e} against {wanted:e}, {error:+.4}, {figure:?}", figure.mean);
        let half = (figure.ci95[1] - figure.ci95[0]) / 2.0 / figure.mean;
        assert!(half < 0.06, "{inner}: {figure:?}");
    }
}

#[test]
fn a_mirror_over_parity_is_safer_than_either_alone() {
    let spec = |text: &str| text.parse::<LayoutSpec>().unwrap();
    let risk = |structure| {
        answer_of(&Question { structure, ..published(Some(168.0)) }, 41, 5000).loss_probability.mean
    };
    let stacked = risk(Structure::stacked(&spec("raid1"), 2, &spec("raid5"), 4).unwrap());
    let parity = risk(Structure::of(&spec("raid5"), 4).unwrap());
    let mirror = risk(Structure::of(&spec("raid1"), 2).unwrap());
    assert!(
        stacked > 0.0 && stacked < 0.01 * parity && stacked < 0.01 * mirror,
        "{stacked} {parity} {mirror}"
    );
    // Stripes over arrays add up.
    let striped = risk(Structure::stacked(&spec("raid0"), 2, &spec("raid5"), 4).unwrap());
    assert!((striped / (1.0 - (1.0 - parity).powi(2)) - 1.0).abs() < 0.05, "{striped} {parity}");
}

#[test]
fn rebuild_time_follows_the_performance_model() {
    let layout: LayoutSpec = "raid6".parse().unwrap();
    let hours = |bytes, work: &str| {
        let kind = Kind::of_size(8, bytes, "hdd");
        let use_ = parse_use(work).unwrap();
        predicted_rebuild(&layout, &kind, "stripewise", &use_).unwrap().unwrap().hours
    };
    let eight = hours(8_000_000_000_000, "mixed");
    assert!(
        (0.4..0.6).contains(&(hours(4_000_000_000_000, "mixed") / eight)),
        "half the size, half the time"
    );
    let predicted = predicted_rebuild(
        &layout,
        &Kind::of_size(8, 8_000_000_000_000, "hdd"),
        "stripewise",
        &parse_use("mixed").unwrap(),
    );
    let wishes = Wishes { predicted: predicted.unwrap(), ..Wishes::new(layout, 8) };
    let asked = wishes.question().unwrap();
    assert_eq!(asked.question.restore, Law::Fixed(eight));
    assert!(asked.assumptions.iter().any(|line| line.contains("8tb-hdd behind stripewise under mixed work")));
    // A given rate overrides the predicted one.
    let given = Wishes { rebuild_bytes_per_second: Some(1e9), ..wishes.clone() };
    assert_ne!(given.question().unwrap().question.restore, asked.question.restore);
    // Space for spares on all drives spreads the writes.
    let wide = LayoutSpec { columns: Some(4), ..layout };
    let on_all = Wishes { layout: wide, spares: Spares::Distributed(1), ..wishes };
    assert_eq!(on_all.question().unwrap().question.restore, Law::Fixed(eight / 4.0));
    let nothing = predicted_rebuild(
        &"raid0".parse().unwrap(),
        &Kind::of_size(4, 8_000_000_000_000, "hdd"),
        "stripewise",
        &parse_use("mixed").unwrap(),
    );
    assert_eq!(nothing.unwrap(), None);
}

#[test]
fn the_default_question_takes_few_trials_for_a_tenth() {
    for layout in ["raid5", "raid6", "raid10"] {
        let asked = Wishes::new(layout.parse().unwrap(), 8).question().unwrap();
        let stop = Stop { precision: 0.1, easy_drive_years: 0.0, ..Stop::default() };
        let found = estimate(&asked.question, asked.bytes_per_group, 1, &stop, &mut |_, _| true).unwrap();
        // 10^7 drive-years a second are to be reached; this is a tenth of a second.
        assert!(found.trials * 80 < 1_000_000, "{layout}: {} trials", found.trials);
        let [low, high] = found.loss_probability.ci95;
        assert!(high - low <= 0.2 * found.loss_probability.mean, "{layout}: {:?}", found.loss_probability);
    }
}

#[test]
fn trials_end_at_the_requested_precision() {
    let question = published(Some(168.0));
    let stop = |precision| Stop { precision, easy_drive_years: 0.0, ..Stop::default() };
    let rough = estimate(&question, 1e12, 1, &stop(0.1), &mut |_, _| true).unwrap();
    let fine = estimate(&question, 1e12, 1, &stop(0.01), &mut |_, _| true).unwrap();
    assert!(rough.trials < fine.trials, "{} and {}", rough.trials, fine.trials);
    let width = |estimate: &Estimate| {
        (estimate.loss_probability.ci95[1] - estimate.loss_probability.ci95[0])
            / estimate.loss_probability.mean
    };
    assert!(width(&rough) <= 0.2 && width(&fine) <= 0.02);
    let stopped = estimate(&question, 1e12, 1, &stop(1e-9), &mut |trials, _| trials < 50_000).unwrap();
    assert!(stopped.trials < 200_000, "the callback did not stop the estimate: {} trials", stopped.trials);
}

#[test]
fn invalid_questions_are_refused() {
    let refused = |question: Question| {
        estimate(&question, 1e12, 1, &Stop::default(), &mut |_, _| true).unwrap_err().to_string()
    };
    let base = textbook("raid5", 4);
    assert!(refused(Question { mission_hours: 0.0, ..base.clone() }).contains("mission"));
    assert!(refused(Question { mission_hours: f64::NAN, ..base.clone() }).contains("mission"));
    assert!(refused(Question { latent_hours: Some(-1.0), ..base.clone() }).contains("latent"));
    let batch = Some(Batch { share: 1.5, factor: 2.0 });
    assert!(refused(Question { batch, ..base.clone() }).contains("share"));
    assert!(refused(Question { failure: Law::Fixed(5.0), ..base.clone() }).contains("fixed:5"));
    let failure = Law::Weibull { location: 6.0, scale: 1e6, shape: 1.0 };
    assert!(refused(Question { failure, ..base }).contains("location"));
}

fn loss_with(drive_bytes: u64, bit_errors: Option<&str>) -> f64 {
    let wishes = Wishes {
        drive_bytes,
        bit_errors: bit_errors.map(|rate| rate.parse().unwrap()),
        restore: Some(Law::Fixed(24.0)),
        ..Wishes::new("raid5".parse().unwrap(), 4)
    };
    let asked = wishes.question().unwrap();
    answer_of(&asked.question, 7, 20_000).loss_probability.mean
}

#[test]
fn a_data_sheets_read_errors_grow_with_capacity() {
    const TB: u64 = 1_000_000_000_000;
    let (small, large) = (loss_with(TB, Some("1e-15")), loss_with(4 * TB, Some("1e-15")));
    assert!((3.0..5.0).contains(&(large / small)), "{small} and {large}");
    assert_eq!(loss_with(TB, None), loss_with(4 * TB, None), "field data count drives, not bits");
    // Three other drives of 1 TB hold 2.4e13 bits; 4 drives fail 0.49 times in ten years.
    assert!((0.006..0.018).contains(&small), "{small}");
}

#[test]
fn solid_state_drives_have_failure_data_of_their_own() {
    let asked = |is_ssd| Wishes { is_ssd, ..Wishes::new("raid0".parse().unwrap(), 8) }.question().unwrap();
    let (disks, solid) = (asked(false), asked(true));
    assert_ne!(disks.question.failure, solid.question.failure);
    assert_ne!(disks.question.latent_hours, solid.question.latent_hours);
    for source in ["Backblaze, The SSD Edition", "Flash Reliability in Production"] {
        assert!(solid.assumptions.iter().any(|line| line.contains(source)), "{source}");
    }
    let by_drives = |asked: &Asked| {
        let found = answer_of(&asked.question, 3, 4096);
        found.events_per_1000.mean - found.latent_events_per_1000.mean
    };
    assert!(by_drives(&solid) < 0.7 * by_drives(&disks), "they fail less often");
}
