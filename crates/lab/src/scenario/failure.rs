//! The failure scenario: takes an array through its states by the hooks of its system.
//!
//! Each state takes all runs of every step. A step's load continues while a drive fails, to measure
//! the cost of the failure itself. If drives can be failed repeatedly ([`Course`]), a run counts as
//! rebuilding only if the rebuild was running throughout, and there are as many rebuilds as that
//! takes. A user's array has one: rounds of runs continue as long as it lasts; a run during which
//! it ended counts if more than half of it was before, and its badge says so. Expects hooks that
//! fail or hang, and rebuilds that never end or end before a run does: the observer keeps all
//! figures measured so far.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;

use futures_util::future::{Either, select};
use stripewise_drive::Context;

use super::timeline::Watch;
use super::{Course, Event, Hooks, Timeline};
use crate::loads::load::Pulse;
use crate::loads::target::Target;
use crate::method::{Condition, Driven, HookError, Profile, RunError, Runner, Session, Whole};
use crate::records::record::MeasurementRecord;
use crate::records::results::State;

/// Poll interval of waiting loops.
const POLL_NS: u64 = 20_000_000;
/// Consecutive rebuilds that end before a single run does, after which the step is abandoned.
const FRUITLESS_REBUILDS: u32 = 2;
/// Course of a user's array.
const USERS: Course =
    Course { states: &State::FAILURE, beside_failing: 0, beside_replacing: Some(0), repeats: false };

/// Prefixes of a step's name, by state.
pub(crate) fn prefixes(states: &[State]) -> Vec<String> {
    states.iter().map(|state| format!("{state}/")).collect()
}

/// Measures `profile` in each of [`State::FAILURE`]. `timeline` receives the state after each of
/// them, and at the end, also on failure.
pub async fn run_failure<T: Target, H: Hooks>(
    profile: &Profile,
    runner: &Runner<'_, T>,
    hooks: &H,
    timeline: &dyn Fn(&Timeline),
) -> Result<(Vec<MeasurementRecord>, Vec<String>), RunError> {
    let session = Session::begin(profile, runner, &prefixes(USERS.states)).await?;
    let (moved, pulse) = (session.moved.clone(), session.pulse.clone());
    watched(session, &runner.context, (&moved, &pulse), hooks, timeline).await?.end().await
}

/// Takes a user's array through its states, and records its throughput in a timeline.
pub(crate) async fn watched<D: Driven, H: Hooks>(
    mut driven: D,
    context: &Context,
    (moved, pulse): (&Rc<Cell<u64>>, &Rc<Pulse>),
    hooks: &H,
    timeline: &dyn Fn(&Timeline),
) -> Result<D, RunError> {
    let watch = Watch::start(context, moved, pulse);
    let tell = |event| match event {
        Event::Begins(state) => watch.mark(state.to_string()),
        Event::Calls(hook) => watch.mark(format!("{hook} begins")),
        Event::Called(hook) => watch.mark(format!("{hook} is done")),
        Event::Rebuilt => watch.mark("rebuilt"),
        Event::Over => timeline(&watch.so_far()),
        Event::Rests => {}
    };
    let gone_through = through(&mut driven, context, Some(hooks), &USERS, &tell).await;
    // Including the current interval.
    watch.end_of_piece().await;
    timeline(&watch.so_far());
    gone_through.map(|()| driven)
}

/// Takes an array and its loads through the states of `course`; without hooks it stays normal.
pub(crate) async fn through<D: Driven, H: Hooks>(
    driven: &mut D,
    context: &Context,
    hooks: Option<&H>,
    course: &Course,
    tell: &dyn Fn(Event),
) -> Result<(), RunError> {
    let mut scenario = Scenario { context, driven, course, tell, waiting: VecDeque::new(), fruitless: 0 };
    scenario.state(State::Normal).await?;
    match hooks {
        Some(hooks) if !scenario.driven.is_interrupted() => scenario.failure(hooks).await,
        _ => Ok(()),
    }
}

struct Scenario<'a, D: Driven> {
    context: &'a Context,
    driven: &'a mut D,
    course: &'a Course,
    tell: &'a dyn Fn(Event),
    /// Steps that need runs during a rebuild.
    waiting: VecDeque<usize>,
    /// Consecutive rebuilds that ended before a run did.
    fruitless: u32,
}

/// State of a rebuild as known from polling.
#[derive(Default)]
struct Rebuild {
    ended: Cell<bool>,
    /// Polling is no longer needed.
    abandoned: Cell<bool>,
}

impl Condition for Rebuild {
    fn holds(&self) -> bool {
        !self.ended.get()
    }
}

impl<D: Driven> Scenario<'_, D> {
    async fn failure<H: Hooks>(&mut self, hooks: &H) -> Result<(), RunError> {
        self.call("fail", hooks.fail(), Some(self.course.beside_failing)).await?;
        self.state(State::Degraded).await?;
        if self.driven.is_interrupted() {
            self.driven.note("the failed drive was not replaced".into());
            return Ok(());
        }
        self.rebuilds(hooks).await?;
        match self.course.states.contains(&State::Recovered) {
            true => self.state(State::Recovered).await,
            false => Ok(()),
        }
    }

    fn steps_of(&self, state: State) -> std::ops::Range<usize> {
        let each = self.driven.steps() / self.course.states.len();
        let number = state as usize;
        number * each..(number + 1) * each
    }

    /// Takes all runs of every step in a state that lasts.
    async fn state(&mut self, state: State) -> Result<(), RunError> {
        (self.tell)(Event::Begins(state));
        for number in self.steps_of(state) {
            while self.driven.wants_more(number) && !self.driven.is_interrupted() {
                self.driven.run_once(number, &Whole).await?;
            }
        }
        (self.tell)(Event::Over);
        Ok(())
    }

    /// Runs a hook while a load continues.
    async fn call(
        &mut self,
        hook: &'static str,
        work: impl Future<Output = Result<(), String>>,
        beside: Option<usize>,
    ) -> Result<(), RunError> {
        let load = self.driven.start_load(beside).await?;
        (self.tell)(Event::Calls(hook));
        let done = work.await;
        (self.tell)(Event::Called(hook));
        self.driven.end_load(load, hook).await?;
        done.map_err(|why| HookError { hook, why }.into())
    }

    /// Takes runs during a rebuild, and during further ones if needed and allowed.
    async fn rebuilds<H: Hooks>(&mut self, hooks: &H) -> Result<(), RunError> {
        let steps = self.steps_of(State::Rebuilding);
        self.waiting = steps.filter(|number| self.driven.wants_more(*number)).collect();
        self.call("replace", hooks.replace(), self.course.beside_replacing).await?;
        (self.tell)(Event::Begins(State::Rebuilding));
        loop {
            self.rebuild(hooks).await?;
            if self.waiting.is_empty() {
                return Ok(());
            }
            if !self.course.repeats {
                self.driven.note("the rebuild ended before all of its runs were taken".into());
                return Ok(());
            }
            self.call("fail", hooks.fail(), None).await?;
            self.call("replace", hooks.replace(), None).await?;
        }
    }

    /// Performs one rebuild, from start to end.
    async fn rebuild<H: Hooks>(&mut self, hooks: &H) -> Result<(), RunError> {
        let rebuild = Rebuild::default();
        let asking = pin!(ask(self.context, self.tell, &rebuild, hooks));
        let measuring = pin!(self.while_rebuilding(&rebuild, hooks));
        match select(asking, measuring).await {
            Either::Left((asked, measuring)) => {
                let measured = measuring.await;
                asked.and(measured)
            }
            // After a failed measurement the rebuild may never end.
            Either::Right((Err(why), _)) => Err(why),
            Either::Right((Ok(()), asking)) => asking.await,
        }
    }

    /// Takes runs as long as the rebuild lasts, then waits for its rest.
    async fn while_rebuilding<H: Hooks>(&mut self, rebuild: &Rebuild, hooks: &H) -> Result<(), RunError> {
        let measured = self.runs_of(rebuild, hooks).await;
        if measured.is_err() || self.driven.is_interrupted() {
            rebuild.abandoned.set(true);
            return measured;
        }
        (self.tell)(Event::Over);
        (self.tell)(Event::Rests);
        let beside = self.course.beside_replacing.filter(|_| rebuild.holds());
        let Some(load) = self.driven.start_load(beside).await? else { return Ok(()) };
        while rebuild.holds() && !self.driven.is_interrupted() {
            self.context.sleep_ns(POLL_NS).await;
        }
        rebuild.abandoned.set(true);
        self.driven.end_load(Some(load), "rebuild-done").await
    }

    async fn runs_of<H: Hooks>(&mut self, rebuild: &Rebuild, hooks: &H) -> Result<(), RunError> {
        let (mut is_first, mut run_ns) = (true, None);
        while let Some(&number) = self.waiting.front() {
            let outlasts = rebuild.holds() && hooks.outlasts(run_ns);
            if !(outlasts || is_first && self.course.repeats) || self.driven.is_interrupted() {
                return Ok(());
            }
            let began_ns = self.context.now_ns();
            let held = self.driven.run_once(number, rebuild).await?;
            let took_ns = self.context.now_ns() - began_ns;
            let ended_early = std::mem::take(&mut is_first) && !held;
            self.fruitless = if held { 0 } else { self.fruitless + u32::from(ended_early) };
            self.waiting.pop_front();
            run_ns = None;
            if self.course.repeats && self.fruitless == FRUITLESS_REBUILDS {
                self.fruitless = 0;
                self.driven.note(format!(
                    "A rebuild ends within {:.1} s, before a run of {} does: larger drives (--size), a slower pace or \
                     shorter runs (--seconds) are needed.",
                    took_ns as f64 / 1e9,
                    self.driven.name(number)
                ));
            } else if self.driven.wants_more(number) && self.course.repeats {
                run_ns = Some(took_ns);
                self.waiting.push_front(number);
            } else if self.driven.wants_more(number) {
                self.waiting.push_back(number);
            }
        }
        Ok(())
    }
}

/// Polls until the array is redundant again, polling fails, or is no longer needed.
async fn ask<H: Hooks>(
    context: &Context,
    tell: &dyn Fn(Event),
    rebuild: &Rebuild,
    hooks: &H,
) -> Result<(), RunError> {
    let (hook, limit_ns) = ("rebuild-done", hooks.rebuild_limit_ns());
    let deadline_ns = context.now_ns().saturating_add(limit_ns);
    let answer = loop {
        match hooks.is_rebuilt().await {
            Ok(true) => {
                tell(Event::Rebuilt);
                break Ok(());
            }
            Err(why) => break Err(HookError { hook, why }.into()),
            Ok(false) if rebuild.abandoned.get() => break Ok(()),
            Ok(false) if context.now_ns() >= deadline_ns => {
                let why = format!("did not report a complete rebuild within {} s", limit_ns as f64 / 1e9);
                break Err(HookError { hook, why }.into());
            }
            Ok(false) => {}
        }
        let until_ns = context.now_ns() + hooks.every_ns();
        while context.now_ns() < until_ns && !rebuild.abandoned.get() {
            context.sleep_ns(POLL_NS.min(hooks.every_ns())).await;
        }
    };
    rebuild.ended.set(true);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    use crate::evaluate::rig::{Rig, Ssds};
    use crate::evaluate::world::World;
    use crate::method::{Circumstances, Observer, RunSettings, Step};
    use crate::records::store::Sample;
    use stripewise_drive::ModelSpec;
    use stripewise_layout::{LayoutSpec, Level};
    use stripewise_runtime::VirtualExecutor;

    const DRIVE_BYTES: u64 = 64 << 20;
    const DISK: ModelSpec =
        ModelSpec { latency_ns: 1_000_000, bytes_per_second: 100_000_000, queue_depth: 4 };

    /// An array of the engine, whose drives are pulled and replaced.
    struct PooledArray<'a> {
        rig: &'a Rig,
        world: &'a World,
        /// Injected failure.
        fault: &'static str,
    }

    impl Hooks for PooledArray<'_> {
        async fn fail(&self) -> Result<(), String> {
            match self.fault {
                "fail" => Err("ended with 1: no such drive".into()),
                _ => self.rig.pull(0).await,
            }
        }

        async fn replace(&self) -> Result<(), String> {
            let drive = self.world.take("spare", DRIVE_BYTES, None).map_err(|error| error.to_string())?;
            self.rig.replace(0, drive).await?;
            if self.fault == "broken" {
                (1..3).for_each(|slot| self.rig.drive(slot).metered.pull());
            }
            Ok(())
        }

        async fn is_rebuilt(&self) -> Result<bool, String> {
            if self.fault == "broken" {
                std::future::pending::<()>().await;
            }
            Ok(self.fault != "for ever" && !self.rig.is_rebuilding())
        }

        fn every_ns(&self) -> u64 {
            50_000_000
        }

        fn rebuild_limit_ns(&self) -> u64 {
            20_000_000_000
        }
    }

    #[derive(Default)]
    struct Kept(RefCell<Vec<String>>);

    impl Observer for Kept {
        fn begins(&self, _: &Step, _: usize, _: usize, _: u32) {}
        fn moved(&self, _: u64, _: &crate::loads::load::Pulse) {}
        fn measured(&self, _: usize, figure: &MeasurementRecord, _: &Sample) -> Result<(), RunError> {
            self.0.borrow_mut().push(figure.name.clone());
            Ok(())
        }
        fn is_interrupted(&self) -> bool {
            false
        }
    }

    type Outcome = (Result<(Vec<MeasurementRecord>, Vec<String>), RunError>, Timeline, Vec<String>);

    fn run(fault: &'static str) -> Outcome {
        let executor = VirtualExecutor::new();
        let world = World::of_models(executor.context(), std::rc::Rc::new(DISK), false);
        let text = "name = \"f\"\nruns = 2\nseconds = 0.2\nverify = true\n[[measurement]]\nname = \"mixed\"\n\
                    read_percents = [50]\npattern = \"random\"\nblocks = [\"64KiB\"]\ndepths = [4]\n";
        let profile = Profile::parse(text).expect("a profile");
        let (kept, seen) = (Kept::default(), RefCell::new(Timeline::default()));
        let outcome = executor.block_on(async {
            let take = |number| world.take(&format!("drive{number}"), DRIVE_BYTES, None).expect("a drive");
            let drives = (0..3).map(take).collect();
            let layout = LayoutSpec::new(Level::Raid5);
            let rig = Rig::with_ssds(&world, layout, drives, Ssds::default(), 1).await.expect("an array");
            let settings = RunSettings {
                runs: None,
                within: None,
                most_runs: 0,
                seconds: None,
                size_bytes: 64 << 20,
                may_write: true,
                fills: true,
                ramp_seconds: 0.0,
                virtual_time: true,
                seed: 1,
                circumstances: Circumstances::default(),
            };
            let target = rig.volume().clone();
            let context = world.context.clone();
            let runner = Runner { context, target, settings, observer: &kept, cpu_seconds: &|| None };
            let hooks = PooledArray { rig: &rig, world: &world, fault };
            let keep = |timeline: &Timeline| *seen.borrow_mut() = timeline.clone();
            let run = run_failure(&profile, &runner, &hooks, &keep);
            let within = runner.context.time_limit_ns(600_000_000_000, pin!(run)).await;
            within.unwrap_or_else(|_| panic!("the scenario never ends"))
        });
        (outcome, seen.into_inner(), kept.0.into_inner())
    }

    #[test]
    fn a_failure_scenario_measures_every_state() {
        let (outcome, timeline, _) = run("");
        let (figures, notes) = outcome.expect("the scenario failed");
        let names: Vec<&str> = figures.iter().map(|figure| figure.name.as_str()).collect();
        assert_eq!(
            names,
            ["normal/mixed", "degraded/mixed", "rebuilding/mixed", "recovered/mixed"],
            "{notes:?}"
        );
        assert!(notes.iter().any(|note| note.contains("none differ")), "{notes:?}");
        let rate = |at: usize| figures[at].mb_per_s.expect("a rate");
        assert!(rate(2) < rate(0) && (rate(3) / rate(0) - 1.0).abs() < 0.2, "{figures:?}");
        let marks: Vec<&str> = timeline.markers.iter().map(|marker| marker.what.as_str()).collect();
        let expected = [
            "normal",
            "fail begins",
            "fail is done",
            "degraded",
            "replace begins",
            "replace is done",
            "rebuilding",
            "rebuilt",
            "recovered",
        ];
        assert_eq!(marks, expected);
        let seconds: Vec<f64> = timeline.markers.iter().map(|marker| marker.seconds).collect();
        assert!(seconds.is_sorted(), "{seconds:?}");
        let covered = timeline.mb_per_s.len() as f64 * timeline.step_seconds;
        assert!(covered >= *seconds.last().expect("markers"), "{covered} {seconds:?}");
        assert!(timeline.mb_per_s.iter().all(|rate| *rate > 0.0), "the load must never pause: {timeline:?}");
        assert_eq!(timeline.mean_us.len(), timeline.mb_per_s.len());
        let mut both = timeline.mean_us.iter().zip(&timeline.longest_us);
        assert!(both.all(|(mean, longest)| *mean >= 1000.0 && longest >= mean), "{timeline:?}");
    }

    #[test]
    fn a_failing_or_endless_hook_keeps_earlier_figures() {
        let (outcome, timeline, kept) = run("fail");
        let why = outcome.expect_err("it fails").to_string();
        assert_eq!(why, "the hook `fail` ended with 1: no such drive");
        assert_eq!(kept, ["normal/mixed"; 2]);
        assert_eq!(timeline.markers.last().expect("markers").what, "fail is done");
        let (outcome, _, kept) = run("for ever");
        let why = outcome.expect_err("it never ends").to_string();
        assert_eq!(why, "the hook `rebuild-done` did not report a complete rebuild within 20 s");
        assert_eq!(kept.len(), 6, "{kept:?}");
    }

    #[test]
    fn a_broken_array_ends_a_scenario_before_its_rebuild() {
        let (outcome, _, kept) = run("broken");
        let why = outcome.expect_err("nothing can be measured").to_string();
        assert!(why.starts_with("mixed: "), "{why}");
        assert_eq!(kept, ["normal/mixed", "normal/mixed", "degraded/mixed", "degraded/mixed"]);
    }
}
