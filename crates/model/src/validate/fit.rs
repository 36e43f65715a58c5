//! Fitting by coordinate search.

use super::answers::answer;
use super::questions::Question;
use super::{Made, Predictor, distance};
use crate::system::{Catalogue, ComponentKind};

/// Steps of a number, as factors.
const STEPS: [f64; 5] = [0.9, 1.1, 0.97, 1.03, 1.3];
/// Share of the usual requests that a search simulates, and how often it goes through the numbers.
const ROUGHLY: f64 = 0.25;
const ROUNDS: usize = 2;
/// Rows farther off than this count as so far: a few hopeless ones do not lead.
const FAR: f64 = 1.0;

/// A fitted number: its places in the catalogue, since parts of a family share one.
pub(super) type Number = Vec<(String, String)>;

/// The fitted numbers of a study, those of its drives first, which all systems share.
pub(super) fn numbers(catalogue: &Catalogue, study: &str) -> Vec<Number> {
    let mut numbers = catalogue.fitted_places();
    numbers.retain(|places| {
        let (component, name) = &places[0];
        let source = &catalogue.component[component].parameters[name].source;
        source.trim_start_matches("study ").starts_with(study)
    });
    numbers.sort_by_key(|places| !matches!(catalogue.component[&places[0].0].kind, ComponentKind::Hdd));
    numbers
}

/// Multiplies a number in all its places.
pub(super) fn scale(catalogue: &mut Catalogue, number: &Number, factor: f64) {
    for (component, name) in number {
        if let Some(value) = catalogue.value_mut(component, name) {
            *value *= factor;
        }
    }
}

/// Moves each number off its place by a quarter, up or down by the seed.
pub(super) fn perturb(catalogue: &mut Catalogue, numbers: &[Number], seed: u64) {
    for (index, number) in numbers.iter().enumerate() {
        let up = mix(seed.wrapping_add(77 + index as u64)) & 1 == 1;
        scale(catalogue, number, if up { 1.25 } else { 0.8 });
    }
}

/// A fit to some questions, with the predictions made so far.
pub(super) struct Fit<'a> {
    questions: &'a [&'a Question],
    made: &'a Made,
    /// Drive and controller that each question depends on.
    parts: Vec<Vec<String>>,
}

impl<'a> Fit<'a> {
    pub(super) fn new(catalogue: &Catalogue, questions: &'a [&'a Question], made: &'a Made) -> Self {
        let predictor = Predictor::new(catalogue, made, ROUGHLY);
        let parts = questions.iter().map(|question| parts(&predictor, question)).collect();
        Self { questions, made, parts }
    }

    /// Distances of the questions at these places, each bounded.
    fn distances(&self, catalogue: &Catalogue, places: &[usize]) -> Vec<f64> {
        use rayon::prelude::*;
        let predictor = Predictor::new(catalogue, self.made, ROUGHLY);
        let of = |place: &usize| {
            let question = self.questions[*place];
            distance(answer(&predictor, question), question.published).min(FAR)
        };
        places.par_iter().map(of).collect()
    }

    /// Places of the questions whose systems have a part with this number.
    fn places(&self, number: &Number) -> Vec<usize> {
        let has = |parts: &[String]| number.iter().any(|(component, _)| parts.contains(component));
        (0..self.questions.len()).filter(|place| has(&self.parts[*place])).collect()
    }

    /// True if a question's answer depends on a number.
    pub(super) fn depends_on(&self, catalogue: &Catalogue, number: &Number) -> bool {
        let places = self.places(number);
        let mut moved = catalogue.clone();
        scale(&mut moved, number, 1.3);
        !places.is_empty() && self.distances(&moved, &places) != self.distances(catalogue, &places)
    }

    /// Improves numbers one after another as long as the mean distance falls.
    pub(super) fn run(&self, catalogue: &mut Catalogue, numbers: &[Number]) {
        let all: Vec<usize> = (0..self.questions.len()).collect();
        let mut best = self.distances(catalogue, &all);
        for _ in 0..ROUNDS {
            let before: f64 = best.iter().sum();
            for number in numbers {
                let places = self.places(number);
                for step in STEPS {
                    while self.improves(catalogue, number, step, &places, &mut best) {}
                }
            }
            if before - best.iter().sum::<f64>() < 1e-5 * all.len() as f64 {
                break;
            }
        }
    }

    /// Tries a step; takes it back where it does not help.
    fn improves(
        &self,
        catalogue: &mut Catalogue,
        number: &Number,
        step: f64,
        places: &[usize],
        best: &mut [f64],
    ) -> bool {
        let old = catalogue.clone();
        scale(catalogue, number, step);
        let tried = self.distances(catalogue, places);
        let gain: f64 = places.iter().zip(&tried).map(|(place, tried)| best[*place] - tried).sum();
        if gain > 1e-7 * best.len() as f64 {
            places.iter().zip(tried).for_each(|(place, tried)| best[*place] = tried);
            return true;
        }
        *catalogue = old;
        false
    }
}

/// Names of the drives and controllers that a question depends on.
pub(super) fn parts(predictor: &Predictor, question: &Question) -> Vec<String> {
    let systems = question.asked.subjects().into_iter().filter_map(|subject| predictor.system(subject));
    systems.flat_map(|system| [system.drive_name.clone(), system.controller_name.clone()]).collect()
}

/// A number that looks random.
pub(super) fn mix(seed: u64) -> u64 {
    let mut value = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (value ^ (value >> 31)) >> 7
}
