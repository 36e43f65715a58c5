//! Drives that go and come back while clients are at work: one at a time, the others in turn.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::kit::Sandbox;
use crate::kit::daemon::until_within;
use crate::span::Span;

/// A rebuild under load may take so long.
const REBUILT_WITHIN: Duration = Duration::from_secs(300);
/// A drive that is gone is noticed within this time, also by a busy machine.
const NOTICED_WITHIN: Duration = Duration::from_secs(60);
/// Clients go on without the drive for so long.
const AWAY: Duration = Duration::from_millis(700);

/// The drives of the pool `tank`.
pub struct Drives<'a> {
    sandbox: &'a Sandbox,
    size: &'static str,
    /// Paths of those in the pool.
    members: Vec<String>,
    /// Made so far.
    made: usize,
    /// What was done.
    pub replaced: u32,
    /// Taken offline and back.
    pub offline: u32,
}

impl<'a> Drives<'a> {
    /// Makes a pool `tank` of so many.
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

    /// A drive goes without a word; its path.
    pub fn pull(&mut self) -> String {
        let place = (self.replaced as usize) % self.members.len();
        let gone = self.members[place].clone();
        std::fs::remove_file(&gone).expect("it was there");
        gone
    }

    /// A new one for the one that was pulled; it is filled from then on.
    pub fn replace(&mut self, gone: &str) {
        let new = self.make();
        self.sandbox.ok(&format!("pool replace tank {gone} {new}"));
        let place = self.members.iter().position(|path| path == gone).expect("a member");
        self.members[place] = new;
        self.replaced += 1;
    }

    /// Waits until the pool is as it should be.
    pub fn until_whole(&self) {
        until_within(REBUILT_WITHIN, "the pool becomes whole again", || self.status() == 0);
    }

    /// The exit code of `pool status`.
    pub fn status(&self) -> i32 {
        self.sandbox.run("pool status tank").code
    }

    /// Paths of the drives in the pool.
    pub fn members(&self) -> &[String] {
        &self.members
    }

    /// Takes a drive offline, and back after a moment.
    pub fn rest_one(&mut self) {
        let place = (self.offline as usize) % self.members.len();
        let path = self.members[place].clone();
        self.sandbox.ok(&format!("pool offline tank {path}"));
        std::thread::sleep(AWAY);
        self.sandbox.ok(&format!("pool online tank {path}"));
        self.offline += 1;
        self.until_whole();
    }

    /// One is pulled, missed, replaced, and the new one filled.
    pub fn replace_one(&mut self) {
        let gone = self.pull();
        until_within(NOTICED_WITHIN, "it is noticed that a drive is gone", || self.status() == 3);
        std::thread::sleep(AWAY);
        self.replace(&gone);
        self.until_whole();
    }

    /// Goes on for as long as the test does; at least one drive is replaced, and one rests.
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

/// Has the test's other threads come to their end when one of them fails.
pub struct Alarm<'a>(pub &'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(false, Ordering::Relaxed);
        }
    }
}
