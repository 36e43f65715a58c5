//! An array through its states, by the hooks of its owner.
//!
//! Each state takes all runs of every step; the load of the first step goes on while a hook works,
//! so that what a failure and a replacement cost is seen, too. Rounds of runs go on while the
//! rebuild does; a run during which it ended counts if more than half of it was before, and says so
//! by its badge. Expects hooks that fail or hang and rebuilds that never end: what was measured
//! until then is kept by the observer.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

use futures_util::future::join;
use stripewise_drive::Context;

use super::timeline::Watch;
use super::{Hooks, Timeline};
use crate::load::Load;
use crate::method::{Condition, Profile, RunError, Runner, Session, Whole, end_of};
use crate::record::MeasurementRecord;
use crate::results::State;
use crate::target::Target;

/// Pieces of the timeline.
pub(crate) const STEP_NS: u64 = 250_000_000;
/// How often waiting loops look.
const POLL_NS: u64 = 20_000_000;

/// The runs of a method in every state, whichever driver takes them.
pub(crate) trait Driven {
    /// A load that goes on while a hook works.
    type Load;

    /// A number for each step in each state, those of a state together.
    fn steps(&self) -> usize;

    fn wants_more(&self, number: usize) -> bool;

    fn is_interrupted(&self) -> bool;

    /// One run. Tells whether the condition held all through.
    fn run_once(
        &mut self,
        number: usize,
        condition: &dyn Condition,
    ) -> impl Future<Output = Result<bool, RunError>>;

    /// Starts the load of the first step.
    fn carry_on(&mut self) -> Result<Option<Self::Load>, RunError>;

    /// Ends it; requests that failed while a drive went are part of what is watched.
    fn end_load(&mut self, load: Self::Load) -> impl Future<Output = Result<(), RunError>>;

    fn note(&mut self, text: String);
}

impl<T: Target> Driven for Session<'_, T> {
    type Load = Load<T>;

    fn steps(&self) -> usize {
        Session::steps(self)
    }

    fn wants_more(&self, number: usize) -> bool {
        Session::wants_more(self, number)
    }

    fn is_interrupted(&self) -> bool {
        Session::is_interrupted(self)
    }

    async fn run_once(&mut self, number: usize, condition: &dyn Condition) -> Result<bool, RunError> {
        Session::run_once(self, number, condition).await
    }

    fn carry_on(&mut self) -> Result<Option<Load<T>>, RunError> {
        Session::carry_on(self)
    }

    async fn end_load(&mut self, load: Load<T>) -> Result<(), RunError> {
        let errors = load.errors();
        if errors > 0 {
            self.notes.push(format!("{errors} requests failed while a hook was at work"));
        }
        end_of(load, "the load beside a hook", 1).await
    }

    fn note(&mut self, text: String) {
        self.notes.push(text);
    }
}

/// What a step's name begins with in each state.
pub(crate) fn prefixes() -> [String; 4] {
    State::FAILURE.map(|state| format!("{state}/"))
}

/// Measures `profile` in each of [`State::FAILURE`]. `timeline` is told how it stands after each of
/// them, and in the end, also when it fails.
pub async fn run_failure<T: Target, H: Hooks>(
    profile: &Profile,
    runner: &Runner<'_, T>,
    hooks: &H,
    timeline: &dyn Fn(&Timeline),
) -> Result<(Vec<MeasurementRecord>, Vec<String>), RunError> {
    let prefixes = prefixes();
    let prefixes: Vec<&str> = prefixes.iter().map(String::as_str).collect();
    let session = Session::begin(profile, runner, &prefixes).await?;
    let watch = Watch::start(&runner.context, &session.moved, &session.pulse, STEP_NS);
    through_failure(session, &runner.context, watch, hooks, timeline).await?.end().await
}

/// Takes an array through its states, and its loads with it.
pub(crate) async fn through_failure<D: Driven, H: Hooks>(
    driven: D,
    context: &Context,
    watch: Watch,
    hooks: &H,
    timeline: &dyn Fn(&Timeline),
) -> Result<D, RunError> {
    let mut scenario = Scenario { context, driven, watch: Rc::new(watch), timeline };
    let gone_through = scenario.all_states(hooks).await;
    // The piece under way, too.
    context.sleep_ns(scenario.watch.step_ns()).await;
    timeline(&scenario.watch.so_far());
    gone_through.map(|()| scenario.driven)
}

struct Scenario<'a, D: Driven> {
    context: &'a Context,
    driven: D,
    watch: Rc<Watch>,
    timeline: &'a dyn Fn(&Timeline),
}

/// How a rebuild stands, as the one who asks for it knows.
#[derive(Default)]
struct Rebuild {
    ended: Cell<bool>,
    /// There is no need to ask any more.
    abandoned: Cell<bool>,
}

impl Condition for Rebuild {
    fn holds(&self) -> bool {
        !self.ended.get()
    }
}

impl<D: Driven> Scenario<'_, D> {
    async fn all_states<H: Hooks>(&mut self, hooks: &H) -> Result<(), RunError> {
        self.state(State::Normal).await?;
        if self.driven.is_interrupted() {
            return Ok(());
        }
        self.under_load("fail", hooks.fail()).await?;
        self.state(State::Degraded).await?;
        if self.driven.is_interrupted() {
            self.driven.note("the array was left without the drive that was failed".into());
            return Ok(());
        }
        self.under_load("replace", hooks.replace()).await?;
        self.watch.mark(State::Rebuilding.to_string());
        let rebuild = Rebuild::default();
        let asking = ask(self.context, self.watch.clone(), &rebuild, hooks);
        let measuring = self.while_rebuilding(&rebuild);
        let (asked, measured) = join(asking, measuring).await;
        asked?;
        measured?;
        self.state(State::Recovered).await
    }

    fn steps_of(&self, state: State) -> std::ops::Range<usize> {
        let each = self.driven.steps() / State::FAILURE.len();
        let number = state as usize;
        number * each..(number + 1) * each
    }

    /// All runs of every step in a state that lasts.
    async fn state(&mut self, state: State) -> Result<(), RunError> {
        self.watch.mark(state.to_string());
        for number in self.steps_of(state) {
            while self.driven.wants_more(number) && !self.driven.is_interrupted() {
                self.driven.run_once(number, &Whole).await?;
            }
        }
        (self.timeline)(&self.watch.so_far());
        Ok(())
    }

    /// A hook at work while the load goes on.
    async fn under_load(
        &mut self,
        what: &str,
        hook: impl Future<Output = Result<(), String>>,
    ) -> Result<(), RunError> {
        let load = self.driven.carry_on()?;
        self.watch.mark(format!("{what} begins"));
        let done = hook.await;
        self.watch.mark(format!("{what} is done"));
        self.end(load).await?;
        done.map_err(|why| RunError::Hook(format!("the hook `{what}` {why}")))
    }

    async fn end(&mut self, load: Option<D::Load>) -> Result<(), RunError> {
        match load {
            Some(load) => self.driven.end_load(load).await,
            None => Ok(()),
        }
    }

    /// Rounds of runs as long as the rebuild lasts, then its rest under load.
    async fn while_rebuilding(&mut self, rebuild: &Rebuild) -> Result<(), RunError> {
        let measured = self.rounds(rebuild).await;
        if measured.is_err() || self.driven.is_interrupted() {
            rebuild.abandoned.set(true);
            return measured;
        }
        let load = if rebuild.holds() { self.driven.carry_on()? } else { None };
        while rebuild.holds() && !self.driven.is_interrupted() {
            self.context.sleep_ns(POLL_NS).await;
        }
        rebuild.abandoned.set(true);
        self.end(load).await
    }

    async fn rounds(&mut self, rebuild: &Rebuild) -> Result<(), RunError> {
        let steps = self.steps_of(State::Rebuilding);
        while steps.clone().any(|number| self.driven.wants_more(number)) {
            for number in steps.clone() {
                if !rebuild.holds() || self.driven.is_interrupted() {
                    let missed = "the rebuild ended before all of its runs were taken";
                    self.driven.note(missed.into());
                    return Ok(());
                }
                if self.driven.wants_more(number) {
                    self.driven.run_once(number, rebuild).await?;
                }
            }
        }
        (self.timeline)(&self.watch.so_far());
        Ok(())
    }
}

/// Asks until the array is whole again, asking fails, or there is no need to know.
async fn ask<H: Hooks>(
    context: &Context,
    watch: Rc<Watch>,
    rebuild: &Rebuild,
    hooks: &H,
) -> Result<(), RunError> {
    let deadline_ns = context.now_ns().saturating_add(hooks.rebuild_limit_ns());
    let answer = loop {
        match hooks.is_rebuilt().await {
            Ok(true) => {
                watch.mark("rebuilt");
                break Ok(());
            }
            Err(why) => break Err(RunError::Hook(format!("the hook `rebuild-done` {why}"))),
            Ok(false) if rebuild.abandoned.get() => break Ok(()),
            Ok(false) if context.now_ns() >= deadline_ns => {
                let seconds = hooks.rebuild_limit_ns() as f64 / 1e9;
                break Err(RunError::Hook(format!("the array was not whole again within {seconds} s")));
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
    use crate::store::Sample;
    use stripewise_drive::ModelSpec;
    use stripewise_layout::{LayoutSpec, Level};
    use stripewise_runtime::VirtualExecutor;

    const DRIVE_BYTES: u64 = 64 << 20;
    const DISK: ModelSpec =
        ModelSpec { latency_ns: 1_000_000, bytes_per_second: 100_000_000, queue_depth: 4 };

    /// An array of ours, whose drives are pulled and given.
    struct OurArray<'a> {
        rig: &'a Rig,
        world: &'a World,
        /// What goes wrong.
        fault: &'static str,
    }

    impl Hooks for OurArray<'_> {
        async fn fail(&self) -> Result<(), String> {
            match self.fault {
                "fail" => Err("ended with 1: no such drive".into()),
                _ => self.rig.pull(0).await,
            }
        }

        async fn replace(&self) -> Result<(), String> {
            let drive = self.world.take("spare", DRIVE_BYTES, None).map_err(|error| error.to_string())?;
            self.rig.replace(0, drive).await
        }

        async fn is_rebuilt(&self) -> Result<bool, String> {
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
        fn moved(&self, _: u64, _: &crate::load::Pulse) {}
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
            let hooks = OurArray { rig: &rig, world: &world, fault };
            run_failure(&profile, &runner, &hooks, &|timeline| *seen.borrow_mut() = timeline.clone()).await
        });
        (outcome, seen.into_inner(), kept.0.into_inner())
    }

    #[test]
    fn an_array_is_measured_in_all_its_states_and_nothing_is_lost() {
        let (outcome, timeline, _) = run("");
        let (figures, notes) = outcome.expect("it goes through");
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
        assert!(timeline.mb_per_s.iter().all(|rate| *rate > 0.0), "the load never rests: {timeline:?}");
        assert_eq!(timeline.mean_us.len(), timeline.mb_per_s.len());
        let mut both = timeline.mean_us.iter().zip(&timeline.longest_us);
        assert!(both.all(|(mean, longest)| *mean >= 1000.0 && longest >= mean), "{timeline:?}");
    }

    #[test]
    fn a_hook_that_fails_or_never_ends_is_told_and_what_was_measured_is_kept() {
        let (outcome, timeline, kept) = run("fail");
        let why = outcome.expect_err("it fails").to_string();
        assert_eq!(why, "the hook `fail` ended with 1: no such drive");
        assert_eq!(kept, ["normal/mixed"; 2]);
        assert_eq!(timeline.markers.last().expect("markers").what, "fail is done");
        let (outcome, _, kept) = run("for ever");
        let why = outcome.expect_err("it never ends").to_string();
        assert_eq!(why, "the array was not whole again within 20 s");
        assert_eq!(kept.len(), 6, "{kept:?}");
    }
}
