//! One trial: the life of an array from event to event.
//!
//! Rare events are reached by splitting. While a group lacks drives, the path divides at each step:
//! one branch in which one of the group's remaining drives fails before the step ends, weighted
//! with the probability `p` of that, and the main path without it, weighted with `1 - p`. So each
//! trial adds an expectation, not a coin that almost never falls. A branch that is whole again, or
//! that has lost its data, goes on with probability `p` and the full weight only (Russian
//! roulette), so that branches do not multiply. All of this leaves every expectation as it is.
//!
//! A latent error met by a drive failure is not drawn either: its probability is known
//! ([`Exposure`]). Afterwards the group's drives are clean, either because they were found so, or
//! because they were restored; with errors that come at random both leave the same state.
//!
//! After a loss the group's drives are restored like any others. Until they are, further losses of
//! the group do not count.
//!
//! Of arrays under another pool (`Group::Stacked`) one that has lost more than it can spare is made
//! again as a whole: its drives are back together, when the last of them would have been rebuilt.

use super::exposure::Exposure;
use super::law::Law;
use super::philox::Random;
use super::structure::{Group, Stacked};
use super::tally::{Of, Tally};
use super::{Batch, Question, Repairs};

/// Above this probability of a failure within a step the step is left to chance.
const SPLIT_BELOW: f64 = 0.02;
/// Failures after the end of every mission.
const LATER: f64 = f64::MAX;
/// Deeper branches are left to chance.
const LEVELS: usize = 6;

/// A question prepared for trials.
pub(super) struct Plan<'a> {
    question: &'a Question,
    /// 1/η of drive failures, and β.
    per_scale: f64,
    shape: f64,
    exposure: Exposure,
    group_of: Vec<usize>,
    first_of: Vec<usize>,
    /// Factors of the hazard in good and bad batches.
    stress: Option<[f64; 2]>,
    bytes_per_group: f64,
}

/// Memory that trials use one after the other.
pub(super) struct Workspace {
    paths: Vec<Path>,
}

#[derive(Default)]
struct Path {
    now: f64,
    weight: f64,
    /// Weight relative to the path that this one branched off from.
    branch: f64,
    /// Probability that no data was lost so far.
    intact: f64,
    drives: Vec<Drive>,
    groups: Vec<State>,
    /// Ends of rebuilds.
    pending: Vec<(f64, usize)>,
    /// When each spare is there, again.
    spares: Vec<f64>,
}

#[derive(Clone, Copy, Default)]
struct Drive {
    /// When it will fail; infinite while it is missing.
    fails_at: f64,
    since: f64,
    clean_since: f64,
    stress: f64,
}

#[derive(Clone, Copy, Default)]
struct State {
    missing: usize,
    /// End of the last rebuild that is planned.
    busy_until: f64,
    /// Probability that the group is not waiting for its restoration after a loss.
    up: f64,
}

/// Outcome of a step: the path continues or ends.
enum Next {
    On,
    End,
}

impl<'a> Plan<'a> {
    pub(super) fn new(question: &'a Question, bytes_per_group: f64) -> Self {
        let Law::Weibull { scale, shape, .. } = question.failure else {
            unreachable!("a question is checked first");
        };
        let (mut group_of, mut first_of) = (Vec::new(), Vec::new());
        for (number, group) in question.structure.groups.iter().enumerate() {
            first_of.push(group_of.len());
            group_of.extend(std::iter::repeat_n(number, group.drives()));
        }
        let stress = question.batch.map(|Batch { share, factor }| {
            let good = 1.0 / (1.0 - share + share * factor);
            [good, good * factor]
        });
        let exposure = Exposure::new(question.latent_hours, question.scrub.as_ref());
        Self {
            question,
            per_scale: 1.0 / scale,
            shape,
            exposure,
            group_of,
            first_of,
            stress,
            bytes_per_group,
        }
    }

    pub(super) fn workspace(&self) -> Workspace {
        Workspace { paths: (0..LEVELS).map(|_| Path::default()).collect() }
    }

    /// Cumulative hazard of a drive of that age.
    #[inline]
    fn hazard(&self, age: f64, stress: f64) -> f64 {
        let relative = age * self.per_scale;
        stress * if self.shape == 1.0 { relative } else { relative.powf(self.shape) }
    }

    /// The age at which the cumulative hazard is that.
    #[inline]
    fn age_at(&self, hazard: f64, stress: f64) -> f64 {
        let relative = hazard / stress;
        let relative = if self.shape == 1.0 { relative } else { relative.powf(1.0 / self.shape) };
        relative / self.per_scale
    }

    /// When a drive fails that works at `now`.
    fn failure_after(&self, drive: &Drive, now: f64, random: &mut Random) -> f64 {
        let spent = self.hazard(now - drive.since, drive.stress);
        drive.since + self.age_at(spent + random.exponential(), drive.stress)
    }

    /// The factor of a new batch.
    fn stress(&self, random: &mut Random) -> f64 {
        match (self.stress, self.question.batch) {
            (Some([good, bad]), Some(batch)) => {
                if random.uniform() < batch.share {
                    bad
                } else {
                    good
                }
            }
            _ => 1.0,
        }
    }

    /// One trial.
    pub(super) fn trial(&self, workspace: &mut Workspace, seed: u64, number: u64) -> Tally {
        let mut random = Random::new(seed, number);
        let mut tally = Tally::default();
        let (first, deeper) = workspace.paths.split_first_mut().expect("there are levels");
        let mission = self.question.mission_hours;
        let count = self.group_of.len();
        let stress = self.stress(&mut random);
        first.drives.clear();
        first.drives.resize(count, Drive { stress, fails_at: LATER, ..Drive::default() });
        first.groups.clear();
        first.groups.resize(self.first_of.len(), State { up: 1.0, ..State::default() });
        first.pending.clear();
        first.spares.clear();
        first.spares.resize(self.question.spares, 0.0);
        (first.now, first.branch, first.intact) = (0.0, 1.0, 1.0);
        // Given that at least one drive fails: which is the first by number, and when do the
        // others.
        let each = self.hazard(mission, stress);
        let all = each * count as f64;
        first.weight = -(-all).exp_m1();
        if self.unprotected_latent_errors() {
            // Drives without redundancy lose data even where none fails.
            first.weight = 1.0;
            for drive in &mut first.drives {
                drive.fails_at = self.age_at(random.exponential(), stress);
            }
        } else {
            let skipped = (random.exponential_below(all) / each) as usize;
            for (index, drive) in first.drives.iter_mut().enumerate().skip(skipped.min(count - 1)) {
                let hazard = match index <= skipped {
                    true => random.exponential_below(each),
                    false => random.exponential(),
                };
                drive.fails_at = self.age_at(hazard, stress);
            }
        }
        self.follow(first, deeper, &mut random, &mut tally);
        tally
    }

    fn unprotected_latent_errors(&self) -> bool {
        let unprotected = |group: &Group| matches!(group, Group::Any { tolerance: 0, .. });
        self.question.latent_hours.is_some() && self.question.structure.groups.iter().any(unprotected)
    }

    /// From where the path is to its end.
    fn follow(&self, path: &mut Path, deeper: &mut [Path], random: &mut Random, tally: &mut Tally) {
        let mission = self.question.mission_hours;
        loop {
            let rebuilt = path.pending.iter().map(|(at, _)| *at).fold(f64::INFINITY, f64::min);
            if rebuilt == f64::INFINITY && matches!(path.roulette(random), Next::End) {
                return;
            }
            let mut step_end = rebuilt.min(mission);
            let (failing, fails_at) = path.first_failure(|_| true);
            if rebuilt < f64::INFINITY
                && let [branch, deeper @ ..] = deeper
            {
                let other = path.first_failure(|drive| !path.is_exposed(self.group_of[drive])).1;
                let end = step_end.min(other);
                let hazard: f64 = self.exposed(path).map(|drive| self.hazard_until(path, drive, end)).sum();
                let probability = -(-hazard).exp_m1();
                if probability > 0.0 && probability < SPLIT_BELOW {
                    branch.become_copy_of(path);
                    branch.weight *= probability;
                    branch.branch *= probability;
                    self.force_failure(branch, end, hazard, random);
                    let (failing, at) = branch.first_failure(|_| true);
                    self.advance(branch, at, tally);
                    if matches!(self.fail(branch, failing, random, tally), Next::On) {
                        self.follow(branch, deeper, random, tally);
                    }
                    path.weight *= 1.0 - probability;
                    for index in 0..path.drives.len() {
                        if path.drives[index].fails_at <= end && path.is_exposed(self.group_of[index]) {
                            path.drives[index].fails_at =
                                self.failure_after(&path.drives[index], end, random);
                        }
                    }
                    if other >= step_end {
                        self.advance(path, step_end, tally);
                        if step_end >= mission {
                            return;
                        }
                        self.complete(path, random);
                        continue;
                    }
                    step_end = other;
                    self.advance(path, step_end, tally);
                    let failing = path.first_failure(|drive| !path.is_exposed(self.group_of[drive])).0;
                    match self.fail(path, failing, random, tally) {
                        Next::On => continue,
                        Next::End => return,
                    }
                }
            }
            if fails_at < step_end {
                self.advance(path, fails_at, tally);
                if matches!(self.fail(path, failing, random, tally), Next::End) {
                    return;
                }
            } else {
                self.advance(path, step_end, tally);
                if step_end >= mission {
                    return;
                }
                self.complete(path, random);
            }
        }
    }

    /// Drives whose failure would take redundancy from a group that has lost some.
    fn exposed<'b>(&'b self, path: &'b Path) -> impl Iterator<Item = usize> + 'b {
        (0..path.drives.len()).filter(|drive| {
            path.drives[*drive].fails_at < f64::INFINITY && path.is_exposed(self.group_of[*drive])
        })
    }

    fn hazard_until(&self, path: &Path, drive: usize, end: f64) -> f64 {
        let Drive { since, stress, .. } = path.drives[drive];
        self.hazard(end - since, stress) - self.hazard(path.now - since, stress)
    }

    /// When the exposed drives fail, given that at least one does before `end`.
    fn force_failure(&self, branch: &mut Path, end: f64, hazard: f64, random: &mut Random) {
        let mut left = random.exponential_below(hazard);
        let mut is_forced = false;
        for index in 0..branch.drives.len() {
            let drive = branch.drives[index];
            if drive.fails_at == f64::INFINITY || !branch.is_exposed(self.group_of[index]) {
                continue;
            }
            if is_forced {
                branch.drives[index].fails_at = self.failure_after(&drive, branch.now, random);
                continue;
            }
            let own = self.hazard_until(branch, index, end);
            is_forced = left < own;
            branch.drives[index].fails_at = match is_forced {
                // The rest is distributed as a failure within the step, given that there is one.
                true => {
                    let spent = self.hazard(branch.now - drive.since, drive.stress);
                    drive.since + self.age_at(spent + left, drive.stress)
                }
                false => self.failure_after(&drive, end, random),
            };
            left -= own;
        }
    }

    /// Time passes.
    fn advance(&self, path: &mut Path, to: f64, tally: &mut Tally) {
        let hours = to - path.now;
        if !path.pending.is_empty() {
            tally.add(Of::DegradedHours, path.weight * hours);
        }
        if self.question.latent_hours.is_some() || !path.pending.is_empty() {
            for (number, group) in self.question.structure.groups.iter().enumerate() {
                self.pass(path, number, group, hours, tally);
            }
        }
        path.now = to;
    }

    /// Time passes for a group without redundancy left.
    fn pass(&self, path: &mut Path, number: usize, group: &Group, hours: f64, tally: &mut Tally) {
        let state = path.groups[number];
        match *group {
            Group::Any { drives, tolerance: 0 } => {
                let Some(mean) = self.question.latent_hours else { return };
                let errors = (drives - state.missing) as f64 * hours / mean * path.weight * state.up;
                let lost = -path.intact * (-((drives - state.missing) as f64) * hours / mean).exp_m1();
                tally.add(Of::Events, errors);
                tally.add(Of::LatentEvents, errors);
                tally.add(Of::BytesLost, errors * self.question.sector_bytes);
                tally.add(Of::Loss, path.weight * lost);
                path.intact -= lost;
            }
            Group::Any { tolerance, .. } if state.missing >= tolerance => {
                tally.add(Of::CriticalHours, path.weight * hours);
            }
            Group::Ring { .. } if state.missing > 0 => tally.add(Of::CriticalHours, path.weight * hours),
            Group::Stacked(stacked) if state.missing > 0 => {
                let first = self.first_of[number];
                if path.critical_drives(first, &stacked).next().is_some() {
                    tally.add(Of::CriticalHours, path.weight * hours);
                }
            }
            _ => (),
        }
    }

    /// A drive fails.
    fn fail(&self, path: &mut Path, index: usize, random: &mut Random, tally: &mut Tally) -> Next {
        let number = self.group_of[index];
        let group = &self.question.structure.groups[number];
        path.drives[index].fails_at = f64::INFINITY;
        path.groups[number].missing += 1;
        tally.add(Of::Rebuilds, path.weight);
        tally.add(Of::Replacements, path.weight);
        self.plan_rebuild(path, index, random);
        if let Group::Stacked(stacked) = group {
            path.restore_as_a_whole(self.first_of[number], stacked, index);
        }

        let (loss, errors) = self.loss(path, number, group, index);
        if loss == 0.0 {
            return Next::On;
        }
        let State { up, .. } = path.groups[number];
        let first = self.first_of[number];
        let read: Vec<usize> = match group {
            Group::Stacked(stacked) if loss < 1.0 => path.critical_drives(first, stacked).collect(),
            _ => Vec::new(),
        };
        match read.as_slice() {
            [] => {
                let drives = &mut path.drives[first..first + group.drives()];
                drives.iter_mut().for_each(|drive| drive.clean_since = path.now);
            }
            read => read.iter().for_each(|drive| path.drives[*drive].clean_since = path.now),
        }
        tally.add(Of::Events, path.weight * up * loss);
        tally.add(Of::Loss, path.weight * path.intact * loss);
        let bytes = match loss {
            1.0 => self.bytes_per_group,
            _ => errors * self.question.sector_bytes,
        };
        tally.add(Of::BytesLost, path.weight * up * bytes);
        if loss < 1.0 {
            tally.add(Of::LatentEvents, path.weight * up * loss);
        }
        path.intact *= 1.0 - loss;
        path.groups[number].up *= 1.0 - loss;
        if loss < 1.0 { Next::On } else { path.roulette(random) }
    }

    /// Probability that the drive that just failed takes data along, and the expected number of
    /// latent errors that do. A probability of 1 is a loss by drives alone.
    fn loss(&self, path: &Path, number: usize, group: &Group, index: usize) -> (f64, f64) {
        let first = self.first_of[number];
        let exposure = |drive: usize| match path.drives[drive].fails_at == f64::INFINITY {
            true => 0.0,
            false => {
                let latent = self.exposure.at(path.now - path.drives[drive].clean_since);
                1.0 - (1.0 - latent) * (1.0 - self.question.read_error)
            }
        };
        let of_errors = |exposures: &mut dyn Iterator<Item = f64>| {
            let (mut none, mut errors) = (1.0, 0.0);
            for exposure in exposures {
                none *= 1.0 - exposure;
                errors += exposure;
            }
            // Errors on every drive are still errors, not a loss of drives.
            ((1.0 - none).min(1.0 - f64::EPSILON), errors)
        };
        match *group {
            Group::Any { tolerance, .. } if path.groups[number].missing > tolerance => (1.0, 0.0),
            Group::Any { tolerance, drives } if path.groups[number].missing == tolerance => {
                of_errors(&mut (first..first + drives).map(exposure))
            }
            Group::Any { .. } => (0.0, 0.0),
            Group::Stacked(stacked) if path.lost_arrays(first, &stacked) > stacked.tolerance => (1.0, 0.0),
            Group::Stacked(stacked) => of_errors(&mut path.critical_drives(first, &stacked).map(exposure)),
            Group::Ring { drives } => {
                let at = index - first;
                let neighbours = [first + (at + 1) % drives, first + (at + drives - 1) % drives];
                if neighbours.iter().any(|other| path.drives[*other].fails_at == f64::INFINITY) {
                    return (1.0, 0.0);
                }
                // Half of what a neighbour holds is also on the drive that failed.
                of_errors(&mut neighbours.into_iter().map(|other| 0.5 * exposure(other)))
            }
        }
    }

    /// When the drive that just failed will have been rebuilt.
    fn plan_rebuild(&self, path: &mut Path, index: usize, random: &mut Random) {
        let question = self.question;
        let number = self.group_of[index];
        let busy_until = match &question.structure.groups[number] {
            Group::Stacked(stacked) => path.part_busy_until(self.first_of[number], stacked, index),
            _ => path.groups[number].busy_until,
        };
        let group = &mut path.groups[number];
        let ready = match &question.replacement {
            None => path.now,
            Some(replacement) => {
                let arrives = path.now + replacement.sample(random);
                // The earlier of a spare and the new drive; where it is a spare, the new drive
                // becomes one.
                match path.spares.iter_mut().min_by(|a, b| a.total_cmp(b)) {
                    Some(spare) if *spare < arrives => std::mem::replace(spare, arrives).max(path.now),
                    _ => arrives,
                }
            }
        };
        let begins = match question.repairs {
            Repairs::OneAtATime => ready.max(busy_until),
            Repairs::Parallel => ready,
        };
        let ends = begins + question.restore.sample(random);
        group.busy_until = group.busy_until.max(ends);
        path.pending.push((ends, index));
    }

    /// The first rebuild that ends.
    fn complete(&self, path: &mut Path, random: &mut Random) {
        let first = (0..path.pending.len()).min_by(|a, b| path.pending[*a].0.total_cmp(&path.pending[*b].0));
        let (now, index) = path.pending.swap_remove(first.expect("a rebuild has ended"));
        let stress = self.stress(random);
        let mut drive = Drive { fails_at: 0.0, since: now, clean_since: now, stress };
        drive.fails_at = self.failure_after(&drive, now, random);
        path.drives[index] = drive;
        let group = &mut path.groups[self.group_of[index]];
        group.missing -= 1;
        if group.missing == 0 {
            group.up = 1.0;
        }
    }
}

/// Arrays under another pool: drives of a part follow each other, parts of an array, arrays of a
/// group.
impl Path {
    fn missing(&self, drives: std::ops::Range<usize>) -> usize {
        self.drives[drives].iter().filter(|drive| drive.fails_at == f64::INFINITY).count()
    }

    /// True if a part of the array has lost more drives than it tolerates.
    fn is_lost(&self, first: usize, stacked: &Stacked, array: usize) -> bool {
        let begins = first + array * stacked.array_drives();
        (0..stacked.parts)
            .map(|part| begins + part * stacked.drives)
            .any(|part| self.missing(part..part + stacked.drives) > stacked.part_tolerance)
    }

    fn lost_arrays(&self, first: usize, stacked: &Stacked) -> usize {
        (0..stacked.arrays).filter(|array| self.is_lost(first, stacked, *array)).count()
    }

    /// Drives that nothing stands in for: no array may be lost any more, nor a drive of their part.
    fn critical_drives(&self, first: usize, stacked: &Stacked) -> impl Iterator<Item = usize> {
        let Stacked { arrays, tolerance, parts, drives, part_tolerance } = *stacked;
        let arrays = if self.lost_arrays(first, stacked) == tolerance { arrays } else { 0 };
        (0..arrays)
            .filter(move |array| !self.is_lost(first, stacked, *array))
            .flat_map(move |array| {
                (array * parts..(array + 1) * parts).map(move |part| first + part * drives)
            })
            .map(move |part| part..part + drives)
            .filter(move |part| self.missing(part.clone()) == part_tolerance)
            .flatten()
            .filter(|drive| self.drives[*drive].fails_at < f64::INFINITY)
    }

    /// When the last rebuild ends that is planned in the part of this drive.
    fn part_busy_until(&self, first: usize, stacked: &Stacked, drive: usize) -> f64 {
        let part = (drive - first) / stacked.drives;
        let same = |other: &usize| *other >= first && (other - first) / stacked.drives == part;
        let ends = self.pending.iter().filter(|(_, other)| same(other)).map(|(ends, _)| *ends);
        ends.fold(0.0, f64::max)
    }

    /// A lost array's drives are back together.
    fn restore_as_a_whole(&mut self, first: usize, stacked: &Stacked, drive: usize) {
        let array = (drive - first) / stacked.array_drives();
        if !self.is_lost(first, stacked, array) {
            return;
        }
        let begins = first + array * stacked.array_drives();
        let drives = begins..begins + stacked.array_drives();
        let of_it = |(_, other): &(f64, usize)| drives.contains(other);
        let last =
            self.pending.iter().copied().filter(|one| of_it(one)).map(|(ends, _)| ends).fold(0.0, f64::max);
        self.pending.iter_mut().filter(|pending| of_it(pending)).for_each(|pending| pending.0 = last);
    }
}

impl Path {
    fn is_exposed(&self, group: usize) -> bool {
        self.groups[group].missing > 0 && self.groups[group].up > 0.0
    }

    fn first_failure(&self, which: impl Fn(usize) -> bool) -> (usize, f64) {
        let mut first = (0, f64::INFINITY);
        for (index, drive) in self.drives.iter().enumerate() {
            if drive.fails_at < first.1 && which(index) {
                first = (index, drive.fails_at);
            }
        }
        first
    }

    /// A branch goes on as often as its weight says, and then as the path it came from.
    fn roulette(&mut self, random: &mut Random) -> Next {
        if self.branch >= 1.0 {
            return Next::On;
        }
        if random.uniform() >= self.branch {
            return Next::End;
        }
        self.weight /= self.branch;
        self.branch = 1.0;
        Next::On
    }

    fn become_copy_of(&mut self, other: &Path) {
        (self.now, self.weight, self.branch, self.intact) =
            (other.now, other.weight, other.branch, other.intact);
        self.drives.clone_from(&other.drives);
        self.groups.clone_from(&other.groups);
        self.pending.clone_from(&other.pending);
        self.spares.clone_from(&other.spares);
    }
}
