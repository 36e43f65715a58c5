//! The arm and the spindle: when a request would be positioned and finished, and moving there.

use std::sync::Arc;

use super::geometry::{Geometry, Target};
use super::parameter_error::ParameterError;
use super::parameters::HddParameters;

/// Time of an access from the arm's current position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// When the arm starts.
    pub start_ns: u64,
    /// Part of the time from `start_ns` to `positioned_ns` that the arm or the head switch takes;
    /// the rest is rotation.
    pub moving_ns: u32,
    /// The first sector to be transferred is under the head.
    pub positioned_ns: u64,
    /// The last one has passed.
    pub finished_ns: u64,
    cylinder: u32,
    head: u16,
}

/// Progress of a transfer at a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Whole sectors that have passed.
    pub sectors: u32,
    /// When the last of them had.
    pub at_ns: u64,
    cylinder: u32,
    head: u16,
}

/// A drive's mechanics.
#[derive(Clone, Debug)]
pub struct Hdd {
    geometry: Arc<Geometry>,
    head_switch_ns: u32,
    write_settle_ns: i32,
    zero_latency_read: bool,
    zero_latency_write: bool,
    phase_ns: u64,
    cylinder: u32,
    head: u16,
}

impl Hdd {
    /// At the outer edge; the seed sets the rotational phase.
    pub fn new(parameters: &HddParameters, seed: u64) -> Result<Self, ParameterError> {
        let geometry = Arc::new(Geometry::new(parameters)?);
        Ok(Self::on(geometry, parameters, seed))
    }

    /// On a geometry that several equal drives share.
    pub fn on(geometry: Arc<Geometry>, parameters: &HddParameters, seed: u64) -> Self {
        let mixed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let phase_ns = (mixed ^ (mixed >> 31)) % u64::from(geometry.revolution_ns());
        Self {
            head_switch_ns: parameters.head_switch_ns,
            write_settle_ns: parameters.write_settle_ns,
            zero_latency_read: parameters.zero_latency_read,
            zero_latency_write: parameters.zero_latency_write,
            geometry,
            phase_ns,
            cylinder: 0,
            head: 0,
        }
    }

    /// The surface.
    pub fn geometry(&self) -> &Arc<Geometry> {
        &self.geometry
    }

    /// Returns the location of a sector; panics beyond the capacity.
    pub fn target(&self, lba: u64) -> Target {
        self.geometry.target(lba)
    }

    fn zero_latency(&self, write: bool) -> bool {
        if write { self.zero_latency_write } else { self.zero_latency_read }
    }

    /// Rotation of the platters, as time since the index passed.
    #[inline]
    pub(super) fn rotation_ns(&self, now_ns: u64) -> u32 {
        ((now_ns + self.phase_ns) % u64::from(self.geometry.revolution_ns())) as u32
    }

    /// Time from one track to another including settling, without rotation.
    #[inline]
    fn moving_ns(&self, cylinder: u32, head: u16, to: &Target, write: bool) -> u32 {
        let distance = cylinder.abs_diff(to.cylinder);
        let switch_ns = if head == to.head { 0 } else { self.head_switch_ns };
        let moving_ns = match distance {
            0 => switch_ns,
            _ => self.geometry.seek.time_ns(distance).max(switch_ns),
        };
        match write && (distance > 0 || head != to.head) {
            true => (i64::from(moving_ns) + i64::from(self.write_settle_ns)).max(0) as u32,
            false => moving_ns,
        }
    }

    /// Rotation until this angle is under the head.
    #[inline]
    pub(crate) fn wait_ns(&self, arrived_ns: u64, angle_ns: u32) -> u32 {
        self.until_angle_ns(self.rotation_ns(arrived_ns), angle_ns)
    }

    #[inline]
    fn until_angle_ns(&self, rotation_ns: u32, angle_ns: u32) -> u32 {
        match angle_ns >= rotation_ns {
            true => angle_ns - rotation_ns,
            false => angle_ns + self.geometry.revolution_ns() - rotation_ns,
        }
    }

    /// When the target is under the head, if the arm starts now.
    #[inline]
    pub fn positioned_ns(&self, now_ns: u64, target: &Target, write: bool) -> u64 {
        now_ns + u64::from(self.positioning_ns(self.rotation_ns(now_ns), target, write, u32::MAX))
    }

    /// The same as a duration, with the rotation of the start at hand: what a scheduler asks of
    /// every candidate. Where the way alone takes as long as `best_ns`, it is not looked at
    /// further, and what is returned is no less than that.
    #[inline]
    pub(super) fn positioning_ns(&self, rotation_ns: u32, target: &Target, write: bool, best_ns: u32) -> u32 {
        let moving_ns = self.moving_ns(self.cylinder, self.head, target, write);
        if moving_ns >= best_ns {
            return moving_ns;
        }
        let arrived_ns = (rotation_ns + moving_ns) % self.geometry.revolution_ns();
        moving_ns + self.until_angle_ns(arrived_ns, target.angle_ns)
    }

    /// An access of `sectors` from `lba`, started now; panics beyond the capacity or without
    /// sectors.
    pub fn plan(&self, now_ns: u64, lba: u64, sectors: u32, write: bool) -> Plan {
        self.plan_from(now_ns, lba, self.target(lba), sectors, write)
    }

    /// Plans the same access with the target already located.
    pub(crate) fn plan_from(&self, now_ns: u64, lba: u64, target: Target, sectors: u32, write: bool) -> Plan {
        let mut pieces = Pieces { hdd: self, lba, left: sectors, write, at_ns: now_ns, target: Some(target) };
        let (mut cylinder, mut head) = (self.cylinder, self.head);
        let first = pieces.next_piece(cylinder, head).expect("an access has sectors");
        (cylinder, head) = (first.target.cylinder, first.target.head);
        let moving_ns = (first.arrived_ns - now_ns) as u32;
        let mut finished_ns = first.finished_ns;
        while let Some(piece) = pieces.next_piece(cylinder, head) {
            (cylinder, head) = (piece.target.cylinder, piece.target.head);
            finished_ns = piece.finished_ns;
        }
        let positioned_ns = first.positioned_ns;
        Plan { start_ns: now_ns, moving_ns, positioned_ns, finished_ns, cylinder, head }
    }

    /// Moves the arm to the plan's end.
    pub fn commit(&mut self, plan: &Plan) {
        (self.cylinder, self.head) = (plan.cylinder, plan.head);
    }

    /// Returns the progress at `until_ns` of a read of up to `sectors` from `lba`, started at
    /// `start_ns`.
    pub fn progress(&self, start_ns: u64, lba: u64, sectors: u32, until_ns: u64) -> Progress {
        let mut progress = Progress { sectors: 0, at_ns: start_ns, cylinder: self.cylinder, head: self.head };
        if sectors == 0 {
            return progress;
        }
        let mut pieces =
            Pieces { hdd: self, lba, left: sectors, write: false, at_ns: start_ns, target: None };
        while let Some(piece) = pieces.next_piece(progress.cylinder, progress.head) {
            if piece.arrived_ns > until_ns {
                break;
            }
            (progress.cylinder, progress.head) = (piece.target.cylinder, piece.target.head);
            if piece.positioned_ns > until_ns {
                break;
            }
            if piece.finished_ns > until_ns {
                let done = self.passed(&piece, until_ns);
                progress.sectors += done.0;
                progress.at_ns = done.1;
                break;
            }
            progress.sectors += piece.sectors;
            progress.at_ns = piece.finished_ns;
        }
        progress
    }

    /// When each sector of a transfer has passed, in the order of their numbers. Of a write,
    /// `ready_ns` says when its data are there: a sector whose data are late is written a
    /// revolution later.
    pub(crate) fn sector_times(
        &self,
        start_ns: u64,
        lba: u64,
        sectors: u32,
        write: bool,
        ready_ns: impl Fn(u32) -> u64,
    ) -> (Plan, Vec<u64>) {
        let mut times = Vec::with_capacity(sectors as usize);
        let mut plan = self.plan_nothing(start_ns);
        let mut at_ns = start_ns;
        while (times.len() as u32) < sectors {
            let done = times.len() as u32;
            let target = self.target(lba + u64::from(done));
            let arrived_ns = at_ns + u64::from(self.moving_ns(plan.cylinder, plan.head, &target, write));
            if done == 0 {
                plan.moving_ns = (arrived_ns - start_ns) as u32;
            }
            let on_track = (sectors - done).min(target.left_on_track);
            let first = times.len();
            self.pass_track(arrived_ns, &target, on_track, write, |index| ready_ns(done + index), &mut times);
            at_ns = times[first..].iter().copied().max().expect("at least one sector passed");
            if done == 0 {
                let passing_ns = u64::from(self.passing_ns(&target, 1));
                plan.positioned_ns = times[first..].iter().copied().min().unwrap_or(at_ns) - passing_ns;
            }
            (plan.cylinder, plan.head) = (target.cylinder, target.head);
        }
        plan.finished_ns = at_ns;
        (plan, times)
    }

    fn plan_nothing(&self, start_ns: u64) -> Plan {
        Plan {
            start_ns,
            moving_ns: 0,
            positioned_ns: start_ns,
            finished_ns: start_ns,
            cylinder: self.cylinder,
            head: self.head,
        }
    }

    /// Passing times of sectors on one track, from when the head is there.
    fn pass_track(
        &self,
        arrived_ns: u64,
        target: &Target,
        sectors: u32,
        write: bool,
        ready_ns: impl Fn(u32) -> u64,
        times: &mut Vec<u64>,
    ) {
        let revolution_ns = u64::from(self.geometry.revolution_ns());
        let zero_latency = self.zero_latency(write);
        let mut start_ns = arrived_ns + u64::from(self.wait_ns(arrived_ns, target.angle_ns));
        let inside = start_ns + u64::from(self.passing_ns(target, sectors)) - arrived_ns > revolution_ns;
        for index in 0..sectors {
            let mut begins_ns = start_ns + u64::from(self.passing_ns(target, index));
            // The head came down inside the piece: sectors from there on come first.
            if zero_latency && inside && begins_ns >= arrived_ns + revolution_ns {
                begins_ns -= revolution_ns;
            }
            let late_ns = ready_ns(index).saturating_sub(begins_ns);
            let lost_ns = late_ns.div_ceil(revolution_ns) * revolution_ns;
            begins_ns += lost_ns;
            if !zero_latency {
                start_ns += lost_ns;
            }
            let sector_ns = self.passing_ns(target, index + 1) - self.passing_ns(target, index);
            times.push(begins_ns + u64::from(sector_ns));
        }
    }

    /// The arm is as far as a transfer had come.
    pub(crate) fn commit_progress(&mut self, progress: &Progress) {
        (self.cylinder, self.head) = (progress.cylinder, progress.head);
    }

    /// Whole sectors of a piece that have passed, and when the last one had.
    fn passed(&self, piece: &Piece, until_ns: u64) -> (u32, u64) {
        let places = u64::from(self.geometry.sectors_per_track(piece.target.zone));
        let elapsed_ns = until_ns - piece.positioned_ns;
        let guess = elapsed_ns * places / u64::from(self.geometry.revolution_ns()) + 1;
        let mut sectors = (guess as u32).min(piece.sectors);
        loop {
            let passed_ns = self.passing_ns(&piece.target, sectors);
            if u64::from(passed_ns) <= elapsed_ns {
                return (sectors, piece.positioned_ns + u64::from(passed_ns));
            }
            sectors -= 1;
        }
    }

    /// Time in which `sectors` from the target on pass the head; they lie on one track.
    #[inline]
    fn passing_ns(&self, target: &Target, sectors: u32) -> u32 {
        let places = self.geometry.sectors_per_track(target.zone);
        let end = target.slot + sectors;
        let end_ns = match end > places {
            true => self.geometry.revolution_ns() + self.geometry.angle_ns(target.zone, end - places),
            false => self.geometry.angle_ns(target.zone, end),
        };
        end_ns - target.angle_ns
    }
}

/// A transfer within one track.
struct Piece {
    target: Target,
    sectors: u32,
    arrived_ns: u64,
    positioned_ns: u64,
    finished_ns: u64,
}

/// The tracks of a transfer, one after another.
struct Pieces<'a> {
    hdd: &'a Hdd,
    lba: u64,
    left: u32,
    write: bool,
    at_ns: u64,
    /// Location of `lba`, once computed.
    target: Option<Target>,
}

impl Pieces<'_> {
    fn next_piece(&mut self, cylinder: u32, head: u16) -> Option<Piece> {
        if self.left == 0 {
            return None;
        }
        let hdd = self.hdd;
        let target = self.target.take().unwrap_or_else(|| hdd.target(self.lba));
        let sectors = self.left.min(target.left_on_track);
        let arrived_ns = self.at_ns + u64::from(hdd.moving_ns(cylinder, head, &target, self.write));
        let wait_ns = hdd.wait_ns(arrived_ns, target.angle_ns);
        let passing_ns = hdd.passing_ns(&target, sectors);
        let revolution_ns = hdd.geometry.revolution_ns();
        // The head came down inside the piece: what has passed comes round last.
        let inside = hdd.zero_latency(self.write) && wait_ns + passing_ns > revolution_ns;
        let (positioned_ns, finished_ns) = match inside {
            true => (arrived_ns, arrived_ns + u64::from(revolution_ns)),
            false => {
                let positioned_ns = arrived_ns + u64::from(wait_ns);
                (positioned_ns, positioned_ns + u64::from(passing_ns))
            }
        };
        self.lba += u64::from(sectors);
        self.left -= sectors;
        self.at_ns = finished_ns;
        Some(Piece { target, sectors, arrived_ns, positioned_ns, finished_ns })
    }
}
