//! Estimates against closed formulas, against a published model, and against themselves.

use stripewise_layout::LayoutSpec;
use stripewise_model::reliability::{
    Batch, Estimate, HOURS_PER_YEAR, Law, Question, Repairs, Stop, Structure, estimate,
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
    let stop = Stop { precision: 0.0, fine_precision: 0.0, easy_drive_years: 0.0, most_trials: trials };
    estimate(question, 1e12, seed, &stop, &mut |_| true).unwrap()
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
fn mirror_pairs_lose_data_as_often_as_the_formula_says() {
    near("raid10", &answer_of(&textbook("raid10", 8), 3, 400_000), 5.20871e9);
    near("raid1", &answer_of(&textbook("raid1", 8), 4, 400_000), 5.20871e9);
}

#[test]
fn a_published_model_of_latent_errors_is_reproduced() {
    for (scrub, low, high) in
        [(Some(168.0), 134.0, 140.0), (Some(48.0), 43.0, 47.0), (Some(336.0), 243.0, 251.0), (None, 1196.0, 1214.0)]
    {
        let figure = answer_of(&published(scrub), 5, 500_000).latent_events_per_1000;
        assert!(figure.mean >= low && figure.mean <= high, "scrub {scrub:?}: {figure:?}");
        assert!(figure.ci95[1] - figure.ci95[0] < 0.01 * figure.mean, "scrub {scrub:?}: {figure:?}");
    }
}
