//! Volumes under constant change: written, zeroed and discarded over NBD while drives are pulled,
//! replaced, taken offline and brought back. Between rounds the volumes grow and shrink, the daemon
//! is stopped or killed, and a drive is restored to its contents of some rounds before. Each round
//! compares every block with its expected content.
//!
//! Faults this can find: a volume shrunk over its data, and a restored drive that is trusted.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use stripewise_drive::SplitMix64;

use crate::drives::{Alarm, Drives};
use crate::kit::daemon::{Daemon, until};
use crate::kit::{Sandbox, unique_bytes};
use crate::nbd_client::{Client, FLUSH, TRIM, WRITE, WRITE_ZEROES};
use crate::span::Span;

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
/// Maximum and minimum size of a volume.
const MOST: u64 = 40 * MIB;
const LEAST: u64 = 4 * MIB;
/// Time that clients work between two changes.
const ROUND: Duration = Duration::from_millis(1500);
/// No error.
const DONE: u32 = 0;

/// Expected content of a block.
#[derive(Clone, Copy, Default)]
struct Block {
    /// Number of the write in the block; 0 for zeros.
    version: u64,
    /// True after a discard: the block holds the write or zeros.
    is_discarded: bool,
}

/// A volume and its expected content.
struct Volume {
    name: &'static str,
    blocks: Vec<Block>,
    random: SplitMix64,
    next_version: u64,
    done: Counts,
}

/// Counts of the operations.
#[derive(Default)]
struct Counts {
    writes: u64,
    discards: u64,
    grown: u64,
    shrunk: u64,
    refused_shrinks: u64,
}

fn contents(version: u64, block: u64) -> Vec<u8> {
    match version {
        0 => vec![0; BLOCK as usize],
        _ => unique_bytes(BLOCK as usize, version << 32 | block),
    }
}

impl Volume {
    fn new(name: &'static str, size: u64, seed: u64) -> Self {
        let blocks = vec![Block::default(); (size / BLOCK) as usize];
        Self { name, blocks, random: SplitMix64::new(seed), next_version: 1, done: Counts::default() }
    }

    fn export(&self) -> String {
        format!("tank/{}", self.name)
    }

    /// Draws a range of at most this number of blocks: the first, and one past the last.
    fn stretch(&mut self, most: u64) -> (u64, u64) {
        let count = self.blocks.len() as u64;
        let first = self.random.below(count);
        (first, (first + 1 + self.random.below(most)).min(count))
    }

    /// Sends a request and checks its reply.
    fn step(&mut self, client: &mut Client) {
        let choice = self.random.below(100);
        let most = match choice {
            0..=9 => 3 * MIB / BLOCK,
            10..=19 => 1024,
            _ => 1 + self.random.below(32),
        };
        let (first, end) = self.stretch(most);
        let (at, length) = (first * BLOCK, ((end - first) * BLOCK) as u32);
        let (kind, payload) = match choice {
            0..=9 => (TRIM, Vec::new()),
            10..=14 => (WRITE_ZEROES, Vec::new()),
            15..=16 => {
                assert_eq!(client.ask(FLUSH, 0, 0, 0, &[]), DONE, "{}: a flush", self.name);
                return;
            }
            17..=29 => return self.expect_stretch(client, first, end.min(first + 256)),
            _ => {
                let version = self.next_version;
                (WRITE, (first..end).flat_map(|block| contents(version, block)).collect())
            }
        };
        let answer = client.ask(kind, 0, at, length, &payload);
        assert_eq!(answer, DONE, "{}: request {kind} at {at}, {length} bytes", self.name);
        let version = if kind == WRITE { self.next_version } else { 0 };
        for block in &mut self.blocks[first as usize..end as usize] {
            match kind {
                TRIM => block.is_discarded = true,
                _ => *block = Block { version, is_discarded: false },
            }
        }
        self.next_version += u64::from(kind == WRITE);
        self.done.writes += u64::from(kind == WRITE);
        self.done.discards += u64::from(kind == TRIM);
    }

    fn expect_stretch(&self, client: &mut Client, first: u64, end: u64) {
        let read = client.read(first * BLOCK, ((end - first) * BLOCK) as u32);
        for (number, found) in (first..end).zip(read.chunks(BLOCK as usize)) {
            let block = self.blocks[number as usize];
            let is_right = found == contents(block.version, number)
                || (block.is_discarded && found.iter().all(|byte| *byte == 0));
            let Block { version, is_discarded } = block;
            assert!(is_right, "{}: block {number}, version {version}, discarded {is_discarded}", self.name);
        }
    }

    fn expect_all(&self, client: &mut Client) {
        let count = self.blocks.len() as u64;
        for first in (0..count).step_by(256) {
            self.expect_stretch(client, first, (first + 256).min(count));
        }
    }

    /// Works for a while, then flushes.
    fn work(&mut self, socket: &Path, all_is_well: &AtomicBool) {
        let mut client = Client::ready(socket, &self.export());
        self.expect_all(&mut client);
        let begin = Instant::now();
        while begin.elapsed() < ROUND && all_is_well.load(Ordering::Relaxed) {
            self.step(&mut client);
        }
        assert_eq!(client.ask(FLUSH, 0, 0, 0, &[]), DONE, "{}: the last flush", self.name);
        self.expect_all(&mut client);
    }

    /// Resizes the volume. Growing succeeds if there is space; shrinking over data is refused.
    fn resize(&mut self, sandbox: &Sandbox) {
        let size = (LEAST + self.random.below(MOST - LEAST)) / BLOCK * BLOCK;
        let (before, count) = (self.blocks.len(), (size / BLOCK) as usize);
        let is_stored = |block: &Block| block.version > 0 && !block.is_discarded;
        let cuts_off = count < before && self.blocks[count..].iter().any(is_stored);
        let words = format!("volume resize {} {size}", self.export());
        let mut answer = sandbox.run(&words);
        // The daemon may still count a client that has just disconnected.
        until("no client is known any more", || {
            let waits = answer.code != 0 && answer.err.contains("a client has");
            if waits {
                answer = sandbox.run(&words);
            }
            !waits
        });
        if answer.code == 0 {
            assert!(!cuts_off, "{}: data were cut off at {size}", self.name);
            self.blocks.resize(count, Block::default());
            self.done.grown += u64::from(count > before);
            self.done.shrunk += u64::from(count < before);
        } else {
            assert!(answer.err.contains("hint: "), "{}", answer.err);
            self.done.refused_shrinks += u64::from(count < before);
        }
    }
}

/// Older copies of drives, and the number of restores.
#[derive(Default)]
struct Copies {
    /// Paths of the copies by the path of their drive.
    kept: BTreeMap<String, String>,
    put_back: u64,
}

impl Copies {
    /// Restores a drive to an older copy, or copies one, while no process has the pool open.
    /// Returns the restored drive.
    fn change(&mut self, sandbox: &Sandbox, drives: &Drives<'_>, random: &mut SplitMix64) -> Option<String> {
        let members = drives.members();
        // Some drives have been replaced since.
        self.kept.retain(|path, _| members.contains(path));
        let member = members[random.below(members.len() as u64) as usize].clone();
        match self.kept.pop_first() {
            Some((path, copy)) if random.chance(0.7) => {
                std::fs::copy(copy, &path).expect("copied");
                self.put_back += 1;
                Some(path)
            }
            _ => {
                let copy = sandbox.text("copy");
                std::fs::copy(&member, &copy).expect("copied");
                self.kept.insert(member, copy);
                None
            }
        }
    }
}

#[test]
fn data_survives_discards_resizes_and_drive_returns() {
    let sandbox = Sandbox::new();
    let mut drives = Drives::pool(&sandbox, 4, "256MiB");
    let size = 16 * MIB;
    sandbox.ok(&format!("volume create tank/a --layout raid5 --size {size} --write-back"));
    sandbox.ok(&format!("volume create tank/b --layout raid5 --columns 3 --size {size} --thin"));
    let mut volumes = [Volume::new("a", size, 1), Volume::new("b", size, 2)];
    let mut random = SplitMix64::new(3);
    let mut copies = Copies::default();
    let mut daemon = Daemon::start(&sandbox, "--nbd unix:nbd.sock");
    let socket = sandbox.path("nbd.sock");
    let span = Span::begin();
    let (mut rounds, mut kills) = (0, 0);
    while rounds < 2 || !span.is_over() {
        let all_is_well = AtomicBool::new(true);
        std::thread::scope(|scope| {
            for volume in &mut volumes {
                let (all_is_well, socket) = (&all_is_well, &socket);
                scope.spawn(move || {
                    let _alarm = Alarm(all_is_well);
                    volume.work(socket, all_is_well);
                });
            }
            let _alarm = Alarm(&all_is_well);
            match rounds % 3 {
                0 => drives.rest_one(),
                1 => drives.replace_one(),
                _ => {}
            }
        });
        volumes.iter_mut().for_each(|volume| volume.resize(&sandbox));
        let is_killed = random.chance(0.5);
        if is_killed {
            kills += 1;
            daemon.kill();
        } else {
            daemon.end();
        }
        let put_back = copies.change(&sandbox, &drives, &mut random);
        daemon = Daemon::start(&sandbox, "--nbd unix:nbd.sock");
        for volume in &volumes {
            volume.expect_all(&mut Client::ready(&socket, &volume.export()));
        }
        if let Some(path) = put_back {
            assert_ne!(drives.status(), 0, "a drive that was put back is not believed");
            sandbox.ok(&format!("pool replace tank {path} {path} --wait"));
        }
        drives.until_whole();
        rounds += 1;
    }
    let scrub = sandbox.ok("pool scrub tank --wait");
    assert_eq!(scrub.text().matches("no errors found").count(), 2, "{}", scrub.text());
    let sum = |count: fn(&Counts) -> u64| volumes.iter().map(|volume| count(&volume.done)).sum::<u64>();
    println!(
        "changing volumes: {} s, {rounds} rounds; {} writes, {} discards, {} times grown, {} shrunk, {} not shrunk; {} drives put \
         back, {} replaced, {} offline and back; {kills} kills",
        span.elapsed().as_secs(),
        sum(|counts| counts.writes),
        sum(|counts| counts.discards),
        sum(|counts| counts.grown),
        sum(|counts| counts.shrunk),
        sum(|counts| counts.refused_shrinks),
        copies.put_back,
        drives.replaced,
        drives.offline,
    );
    daemon.end();
}
