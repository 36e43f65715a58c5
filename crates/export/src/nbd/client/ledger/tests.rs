//! The ledger against a modelled server: it takes requests in any order, has a cache that it loses
//! when it crashes, and connections that are cut anywhere. Each life is drawn from a seed.

use std::collections::BTreeMap;

use stripewise_drive::{Completion, SplitMix64, completion};

use super::*;

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 24;

/// Contents of blocks as one number each.
#[derive(Clone, Default)]
struct Server {
    cached: BTreeMap<u64, u8>,
    durable: BTreeMap<u64, u8>,
}

impl Server {
    fn now(&self, block: u64) -> u8 {
        *self.cached.get(&block).or_else(|| self.durable.get(&block)).unwrap_or(&0)
    }

    fn flush(&mut self) {
        let cached = std::mem::take(&mut self.cached);
        self.durable.extend(cached);
    }

    /// Loses the cached content of each block with a probability of one half.
    fn crash(&mut self, random: &mut SplitMix64) {
        for (block, value) in std::mem::take(&mut self.cached) {
            if random.below(2) == 0 {
                self.durable.insert(block, value);
            }
        }
    }
}

/// A piece on its way.
struct Sent {
    kind: u16,
    fua: bool,
    cookie: u64,
    offset: u64,
    length: u64,
    data: Segments,
}

fn field<const N: usize>(head: &[u8; 28], at: usize) -> [u8; N] {
    head[at..at + N].try_into().expect("within the head")
}

fn sent((head, data): ([u8; 28], Segments)) -> Sent {
    assert_eq!(u32::from_be_bytes(field(&head, 0)), REQUEST_MAGIC);
    Sent {
        kind: u16::from_be_bytes(field(&head, 6)),
        fua: u16::from_be_bytes(field(&head, 4)) & CMD_FLAG_FUA != 0,
        cookie: u64::from_be_bytes(field(&head, 8)),
        offset: u64::from_be_bytes(field(&head, 16)),
        length: u64::from(u32::from_be_bytes(field(&head, 24))),
        data,
    }
}

/// Acknowledged content of a block, and the number of the acknowledgement, since contents repeat.
type Acknowledged = (u8, u64);

/// A caller's request in flight.
struct Asked {
    answer: Completion,
    request: IoRequest,
    value: u8,
    /// For a flush: what was acknowledged when it was asked for.
    promised: BTreeMap<u64, Acknowledged>,
}

struct Life {
    random: SplitMix64,
    ledger: Ledger,
    server: Server,
    wire: Vec<Sent>,
    /// Replies in flight of executed requests: number, and for a read each block with its contents.
    answers: Vec<(u64, Vec<(u64, u8)>)>,
    asked: Vec<Asked>,
    /// Acknowledged contents, and the part of it that is durable by a flush or by force.
    acknowledged: BTreeMap<u64, Acknowledged>,
    next_value: u8,
    writes: u64,
    flushes: u64,
    repeats: u64,
}

impl Life {
    fn new(seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let abilities = Abilities {
            fua: random.below(2) == 0,
            trim: false,
            zeroes: random.below(2) == 0,
            longest_bytes: BLOCK * (1 + random.below(3)),
        };
        let (ledger, server) = (Ledger::new(abilities), Server::default());
        let (wire, asked, acknowledged) = (Vec::new(), Vec::new(), BTreeMap::new());
        let answers = Vec::new();
        Self {
            random,
            ledger,
            server,
            wire,
            answers,
            asked,
            acknowledged,
            next_value: 0,
            writes: 0,
            flushes: 0,
            repeats: 0,
        }
    }

    fn blocks(request: &IoRequest) -> std::ops::Range<u64> {
        request.offset_bytes / BLOCK..request.end_bytes() / BLOCK
    }

    /// As the engine: nothing overlaps what is being written.
    fn ask(&mut self) {
        let first = self.random.below(BLOCKS - 4);
        let count = 1 + self.random.below(4);
        let busy = self.asked.iter().any(|asked| {
            let blocks = Self::blocks(&asked.request);
            blocks.start < first + count && first < blocks.end
        });
        self.next_value = self.next_value % 250 + 1;
        let (value, bytes) = (self.next_value, (count * BLOCK) as usize);
        let (request, value) = match self.random.below(8) {
            0 | 1 => (IoRequest { offset_bytes: first * BLOCK, ..IoRequest::flush() }, 0),
            _ if busy => return,
            2..=4 => {
                let halves =
                    [bytes / 2, bytes - bytes / 2].map(|length| Buffer::from_bytes(&vec![value; length]));
                let fua = self.random.below(3) == 0;
                let write = Operation::Write { fua };
                (IoRequest::with_segments(write, first * BLOCK, Segments::from_iter(halves)), value)
            }
            5 => (IoRequest::range(Operation::WriteZeroes, first * BLOCK, bytes as u64), 0),
            _ => (IoRequest::read(first * BLOCK, Buffer::from_bytes(&vec![255; bytes])), 0),
        };
        let (sender, answer) = completion();
        let promised = self.acknowledged.clone();
        assert!(self.ledger.submit(request.clone(), Some(sender), 0).is_none());
        self.asked.push(Asked { answer, request, value, promised });
    }

    /// The server carries one out.
    fn execute(&mut self) {
        let index = self.random.below(self.wire.len() as u64) as usize;
        let piece = self.wire.swap_remove(index);
        let blocks = piece.offset / BLOCK..(piece.offset + piece.length) / BLOCK;
        match piece.kind {
            CMD_FLUSH => {
                assert_eq!((piece.offset, piece.length), (0, 0), "servers refuse any other");
                self.server.flush();
            }
            CMD_READ => {}
            _ => {
                let data: Vec<u8> = piece.data.iter().flat_map(Buffer::to_vec).collect();
                assert!(piece.kind == CMD_WRITE_ZEROES || data.len() as u64 == piece.length);
                for (index, block) in blocks.clone().enumerate() {
                    let value = data.get(index * BLOCK as usize).copied().unwrap_or(0);
                    self.server.cached.insert(block, value);
                    if piece.fua {
                        self.server.cached.remove(&block);
                        self.server.durable.insert(block, value);
                    }
                }
            }
        }
        let read = if piece.kind == CMD_READ { blocks } else { 0..0 };
        let contents = read.rev().map(|block| (block, self.server.now(block))).collect();
        self.answers.push((piece.cookie, contents));
    }

    /// One of its answers arrives.
    fn take_answer(&mut self) {
        let index = self.random.below(self.answers.len() as u64) as usize;
        let (cookie, contents) = self.answers.swap_remove(index);
        for (block, value) in contents {
            let into = self.ledger.receiving(cookie, block * BLOCK, BLOCK).expect("asked for");
            into.iter().for_each(|piece| piece.fill(value));
            assert!(self.ledger.receiving(cookie, block * BLOCK, 1).is_none(), "bytes come once");
        }
        let completed = self.ledger.answered(cookie).expect("asked");
        completed.into_iter().for_each(|completed| completed.tell(&"drive".into()));
        self.look();
    }

    /// Looks at what was answered.
    fn look(&mut self) {
        let mut done = Vec::new();
        for Asked { answer, request, value, promised } in std::mem::take(&mut self.asked) {
            match answer.try_take() {
                Ok(answered) => done
                    .push((answered, Asked { answer: Completion::ready(Ok(())), request, value, promised })),
                Err(answer) => self.asked.push(Asked { answer, request, value, promised }),
            }
        }
        for (answered, asked) in done {
            answered.expect("nothing fails here");
            match asked.request.operation {
                Operation::Flush => {
                    self.flushes += 1;
                    self.check_durable(&asked.promised);
                }
                Operation::Read => {
                    let data: Vec<u8> = asked.request.segments.iter().flat_map(Buffer::to_vec).collect();
                    for (index, block) in Self::blocks(&asked.request).enumerate() {
                        let expected = self.acknowledged.get(&block).map_or(0, |acknowledged| acknowledged.0);
                        let got = &data[index * BLOCK as usize..(index + 1) * BLOCK as usize];
                        assert!(
                            got.iter().all(|byte| *byte == expected),
                            "block {block}: {} for {expected}",
                            got[0]
                        );
                    }
                }
                operation => {
                    self.writes += 1;
                    let written: BTreeMap<u64, Acknowledged> = Self::blocks(&asked.request)
                        .map(|block| (block, (asked.value, self.writes)))
                        .collect();
                    self.acknowledged.extend(written.clone());
                    if operation == (Operation::Write { fua: true }) {
                        self.check_durable(&written);
                    }
                }
            }
        }
    }

    /// Checks that each promised content, or a newer one, is durable.
    fn check_durable(&self, promised: &BTreeMap<u64, Acknowledged>) {
        for (block, value) in promised {
            let is_newer = self.acknowledged.get(block) != Some(value)
                || self.asked.iter().any(|asked| Self::blocks(&asked.request).contains(block));
            let durable = self.server.durable.get(block).copied().unwrap_or(0);
            assert!(durable == value.0 || is_newer, "block {block} is {durable}, {} was promised", value.0);
        }
    }

    /// Cuts the connection. Returns true if the client reconnects.
    fn cut(&mut self) -> bool {
        // The server still executes some of the requests that it had received.
        while !self.wire.is_empty() && self.random.below(2) == 0 {
            self.execute();
        }
        self.wire.clear();
        self.answers.clear();
        if self.random.below(2) == 0 {
            self.server.crash(&mut self.random);
        }
        match self.ledger.connection_lost() {
            Loss::AskAgain => {
                self.repeats += 1;
                if let Some(seen) = self.ledger.witness.durable() {
                    let value = self.server.now(seen.offset / BLOCK);
                    assert_eq!(
                        seen,
                        super::super::identity_probe::Seen::of(seen.offset, &vec![value; seen.length])
                    );
                }
                true
            }
            Loss::Unflushed | Loss::InHand => {
                let completed = self.ledger.give_up();
                assert_eq!(completed.len(), self.asked.len(), "every caller gets a reply");
                completed.into_iter().for_each(|completed| completed.tell(&"drive".into()));
                for asked in std::mem::take(&mut self.asked) {
                    let answered = asked.answer.try_take().ok().expect("every caller gets a reply");
                    assert_eq!(answered.expect_err("gone").kind, DriveErrorKind::Gone);
                }
                false
            }
        }
    }

    fn run(&mut self) {
        for _ in 0..400 {
            match self.random.below(10) {
                0..=3 => self.ask(),
                4 | 5 => self.wire.extend(self.ledger.next_to_send().map(sent)),
                6 if !self.wire.is_empty() => self.execute(),
                7 | 8 if !self.answers.is_empty() => self.take_answer(),
                9 if self.random.below(8) == 0 && !self.cut() => return,
                _ => {}
            }
        }
        // With nothing in the way all of it ends.
        loop {
            self.wire.extend(std::iter::from_fn(|| self.ledger.next_to_send()).map(sent));
            match (self.wire.is_empty(), self.answers.is_empty()) {
                (false, _) => self.execute(),
                (true, false) => self.take_answer(),
                (true, true) => break,
            }
        }
        assert!(self.asked.is_empty() && self.ledger.is_idle());
    }
}

#[test]
fn acknowledged_writes_survive_any_disconnect() {
    let (mut flushes, mut repeats) = (0, 0);
    for seed in 0..2_000 {
        let mut life = Life::new(seed);
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| life.run()));
        assert!(ran.is_ok(), "seed {seed} broke a promise");
        (flushes, repeats) = (flushes + life.flushes, repeats + life.repeats);
    }
    assert!(flushes > 2_000 && repeats > 250, "{flushes} flushes, {repeats} connections made again");
}

#[test]
fn malformed_replies_are_refused() {
    let abilities = Abilities { fua: true, trim: true, zeroes: true, longest_bytes: 2 * BLOCK };
    let mut ledger = Ledger::new(abilities);
    let (sender, _answer) = completion();
    let read = IoRequest::read(BLOCK, Buffer::from_bytes(&[0; 2 * BLOCK as usize]));
    assert!(ledger.submit(read, Some(sender), 5).is_none());
    assert_eq!(ledger.oldest_ns(), Some(5));
    let Sent { cookie, .. } = sent(ledger.next_to_send().expect("a read"));
    assert!(ledger.asked(cookie + 1).is_none(), "what was not asked");
    assert!(ledger.answered(cookie + 1).is_err());
    for (offset, length) in [(0, BLOCK), (BLOCK, 3 * BLOCK), (3 * BLOCK, 1), (u64::MAX, 2), (BLOCK, 0)] {
        assert!(ledger.receiving(cookie, offset, length).is_none(), "{length} at {offset}");
    }
    assert!(ledger.receiving(cookie, BLOCK, BLOCK).is_some());
    assert!(ledger.receiving(cookie, BLOCK + 7, 1).is_none(), "twice");
    assert!(ledger.answered(cookie).is_err(), "half of it is missing");
}

#[test]
fn a_durable_block_reveals_a_server_that_lost_data() {
    let mut ledger = Ledger::new(Abilities { fua: true, trim: true, zeroes: true, longest_bytes: BLOCK });
    let ask = |ledger: &mut Ledger, request: IoRequest| {
        assert!(ledger.submit(request, None, 0).is_none());
        while let Some(piece) = ledger.next_to_send() {
            assert!(ledger.answered(sent(piece).cookie).expect("asked").is_some());
        }
    };
    let write =
        |block: u64, value: u8| IoRequest::write(block * BLOCK, Buffer::from_bytes(&[value; 4096]), false);
    ask(&mut ledger, write(3, 7));
    assert_eq!(ledger.witness.durable(), None, "it may be lost yet");
    assert_eq!(ledger.connection_lost(), Loss::Unflushed);
    ask(&mut ledger, IoRequest::flush());
    let seen = ledger.witness.durable().expect("durable");
    assert_eq!(seen, super::super::identity_probe::Seen::of(3 * BLOCK, &[7; 4096]));
    assert_eq!(ledger.connection_lost(), Loss::AskAgain);
    // A block that is being overwritten no longer identifies the export.
    assert!(ledger.submit(write(3, 8), None, 0).is_none());
    assert_eq!(ledger.witness.durable(), None);
}

#[test]
fn changes_left_with_a_server_end_the_drive() {
    for (request, ends) in [
        (IoRequest::write(0, Buffer::from_bytes(&[1; 4096]), true), true),
        (IoRequest::write(0, Buffer::from_bytes(&[1; 4096]), false), true),
        (IoRequest::range(Operation::WriteZeroes, 0, BLOCK), true),
        (IoRequest::range(Operation::Discard, 0, BLOCK), true),
        (IoRequest::read(0, Buffer::from_bytes(&[0; 4096])), false),
        (IoRequest::flush(), false),
    ] {
        for zeroes in [false, true] {
            let abilities = Abilities { fua: true, trim: true, zeroes, longest_bytes: BLOCK };
            let mut ledger = Ledger::new(abilities);
            assert!(ledger.submit(request.clone(), None, 7).is_none());
            // As long as the server has not got it, it cannot carry it out.
            assert_eq!((ledger.in_hand_ns(), ledger.connection_lost()), (None, Loss::AskAgain));
            assert!(ledger.next_to_send().is_some());
            let expected = if ends { (Some(7), Loss::InHand) } else { (None, Loss::AskAgain) };
            assert_eq!((ledger.in_hand_ns(), ledger.connection_lost()), expected, "{request:?}");
        }
    }
}

#[test]
fn a_failed_flush_for_fua_is_reported_as_a_flush() {
    for is_flush_refused in [false, true] {
        let abilities = Abilities { fua: false, trim: true, zeroes: true, longest_bytes: BLOCK };
        let mut ledger = Ledger::new(abilities);
        let (sender, answer) = completion();
        let data = Buffer::from_bytes(&[7; BLOCK as usize]);
        assert!(ledger.submit(IoRequest::write(0, data, true), Some(sender), 0).is_none());
        let write = sent(ledger.next_to_send().expect("the write")).cookie;
        if !is_flush_refused {
            ledger.failing(write, 5);
        }
        let mut completed = ledger.answered(write).expect("it was asked");
        assert_eq!(completed.is_none(), is_flush_refused, "a write that is refused needs no flush");
        if is_flush_refused {
            let flush = sent(ledger.next_to_send().expect("the flush")).cookie;
            ledger.failing(flush, 5);
            completed = ledger.answered(flush).expect("it was asked");
        }
        completed.expect("that was the last piece").tell(&"drive".into());
        let Ok(Err(error)) = answer.try_take() else { panic!("it was refused") };
        let told = if is_flush_refused { Operation::Flush } else { Operation::Write { fua: true } };
        assert_eq!(error.operation, told);
    }
}
