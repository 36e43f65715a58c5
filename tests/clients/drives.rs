//! Removes and returns the drives of a pool under load, one at a time, in turn.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::kit::Sandbox;
use crate::kit::daemon::until_within;
use crate::span::Span;

/// Time limit of a rebuild under load.
const REBUILT_WITHIN: Duration = Duration::from_secs(300);
/// Time limit to detect a missing drive, also on a busy host.
const NOTICED_WITHIN: Duration = Duration::from_secs(60);
/// Time that clients work without the drive.
const AWAY: Duration = Duration::from_millis(700);

/// The drives of the pool `tank`.
pub struct Drives<'a> {
    sandbox: &'a Sandbox,
    size: &'static str,
    /// Paths of the drives in the pool.
    members: Vec<String>,
    /// Number of drives created so far.
    made: usize,
    /// Log of the actions.
    pub replaced: u32,
    /// Number of drives taken offline and brought back.
    pub offline: u32,
}

impl<'a> Drives<'a> {
    /// Creates a pool `tank` with this number of drives.
    pub fn pool(sandbox: &'a Sandbox, count: usize, size: &'static str) -> Self {
        let mut drives = Self { sandbox, size, members: Vec::new(), made: 0, replaced: 0, offline: 0 };
        drives.members = (0..count).map(|_| drives.make()).collect();
        sandbox.ok(&format!("pool create tank {}", drives.members.join(" ")));
        drives
    }

    fn make(&mut self) -> String {
        let number = self.made;
        self.made += 1;
        self.sandbox.ok(&format!("drive make @d --count 1 --first {number} --size {}", self.size));
        self.sandbox.text(&format!("d/drive{number}.img"))
    }

    /// Unplugs a drive. Returns its path.
    pub fn pull(&mut self) -> String {
        let place = (self.replaced as usize) % self.members.len();
        let gone = self.members[place].clone();
        std::fs::remove_file(&gone).expect("it was there");
        gone
    }

    /// Replaces the unplugged drive by a new one, which starts a rebuild.
    pub fn replace(&mut self, gone: &str) {
        let new = self.make();
        self.sandbox.ok(&format!("pool replace tank {gone} {new}"));
        let place = self.members.iter().position(|path| path == gone).expect("a member");
        self.members[place] = new;
        self.replaced += 1;
    }

    /// Waits until the pool is online.
    pub fn until_whole(&self) {
        until_within(REBUILT_WITHIN, "the pool becomes whole again", || self.status() == 0);
    }

    /// Exit code of `pool status`.
    pub fn status(&self) -> i32 {
        self.sandbox.run("pool status tank").code
    }

    /// Paths of the drives in the pool.
    pub fn members(&self) -> &[String] {
        &self.members
    }

    /// Takes a drive offline and brings it back after a moment.
    pub fn rest_one(&mut self) {
        let place = (self.offline as usize) % self.members.len();
        let path = self.members[place].clone();
        self.sandbox.ok(&format!("pool offline tank {path}"));
        std::thread::sleep(AWAY);
        self.sandbox.ok(&format!("pool online tank {path}"));
        self.offline += 1;
        self.until_whole();
    }

    /// Unplugs a drive, waits until it is missed, replaces it and waits for the rebuild.
    pub fn replace_one(&mut self) {
        let gone = self.pull();
        until_within(NOTICED_WITHIN, "it is noticed that a drive is gone", || self.status() == 3);
        std::thread::sleep(AWAY);
        self.replace(&gone);
        self.until_whole();
    }

    /// Repeats this for the duration of the test; replaces at least one drive and takes one
    /// offline.
    pub fn come_and_go(&mut self, span: Span, all_is_well: &AtomicBool) {
        while all_is_well.load(Ordering::Relaxed) {
            self.replace_one();
            self.rest_one();
            if span.is_over() {
                return;
            }
        }
    }
}

/// Stops the test's other threads when one of them fails.
pub struct Alarm<'a>(pub &'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(false, Ordering::Relaxed);
        }
    }
}
