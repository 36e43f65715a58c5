//! A front end for tests: a guest's memory in a file, rings in it written by hand, and the messages
//! of the protocol. It also does what no guest should do.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::pin::pin;

use stripewise_drive::Context;
use stripewise_runtime::{EventFile, Network, Stream, make_event_file, make_shared_file};

/// Addresses at which the memory begins, for the guest and for the front end.
pub const GUEST: u64 = 0x10_0000;
const USER: u64 = 0x7000_0000_0000;
pub const MEMORY_BYTES: u64 = 16 << 20;
/// Memory of each queue: descriptors, available ring, used ring, and indirect tables.
const QUEUE_BYTES: u64 = 0x8000;
const AVAILABLE_AT: u64 = 0x2000;
const USED_AT: u64 = 0x4000;
pub const TABLES_AT: u64 = 0x6000;
/// Memory for data, after that of all queues.
pub const DATA_AT: u64 = 1 << 20;
pub const QUEUE_SIZE: u16 = 128;

pub const NEXT: u16 = 1;
pub const WRITABLE: u16 = 2;
pub const INDIRECT: u16 = 4;

pub const READ: u32 = 0;
pub const WRITE: u32 = 1;
pub const FLUSH: u32 = 4;
pub const GET_ID: u32 = 8;
pub const DISCARD: u32 = 11;
pub const WRITE_ZEROES: u32 = 13;

pub const EVENT_IDX: u64 = 1 << 29;
pub const PROTOCOL_FEATURES: u64 = 1 << 30;
pub const FLUSHES: u64 = 1 << 9;
pub const VERSION_1: u64 = 1 << 32;
/// MQ, REPLY_ACK, BACKEND_REQ, CONFIG, INFLIGHT_SHMFD, RESET_DEVICE, CONFIGURE_MEM_SLOTS, STATUS.
pub const PROTOCOL: u64 = 1 | 1 << 3 | 1 << 5 | 1 << 9 | 1 << 12 | 1 << 13 | 1 << 15 | 1 << 16;

const LONG_NS: u64 = 30_000_000_000;

/// A guest: its memory and the state of its driver, which outlive a connection.
pub struct Guest {
    pub memory: File,
    /// Available and used chains of each queue.
    pub rings: Vec<Ring>,
}

#[derive(Clone, Copy, Default)]
pub struct Ring {
    pub available: u16,
    pub used: u16,
    /// `available` when [`Guest::wants_kick`] was last asked.
    kicked: u16,
}

impl Guest {
    pub fn new(queues: usize) -> Self {
        Self::with_memory(make_shared_file(MEMORY_BYTES).expect("a memfd").into(), queues)
    }

    pub fn with_memory(memory: File, queues: usize) -> Self {
        Self { memory, rings: vec![Ring::default(); queues] }
    }

    pub fn put(&self, at: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, at).expect("within the memory");
    }

    pub fn get(&self, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.read_exact_at(&mut bytes, at).expect("within the memory");
        bytes
    }

    pub fn queue_at(queue: usize) -> u64 {
        queue as u64 * QUEUE_BYTES
    }

    /// Writes a descriptor to a table at an offset of the memory; `at` is its buffer's offset.
    pub fn put_descriptor(&self, table: u64, index: u16, at: u64, length: u32, flags: u16, next: u16) {
        self.put_raw_descriptor(table, index, GUEST.wrapping_add(at), length, flags, next);
    }

    pub fn put_raw_descriptor(
        &self,
        table: u64,
        index: u16,
        address: u64,
        length: u32,
        flags: u16,
        next: u16,
    ) {
        let bytes =
            [&address.to_le_bytes()[..], &length.to_le_bytes(), &flags.to_le_bytes(), &next.to_le_bytes()];
        self.put(table + 16 * u64::from(index), &bytes.concat());
    }

    /// Makes the chain that begins with `head` available.
    pub fn make_available(&mut self, queue: usize, head: u16) {
        let (at, ring) = (Self::queue_at(queue) + AVAILABLE_AT, &mut self.rings[queue]);
        let entry = at + 4 + 2 * u64::from(ring.available % QUEUE_SIZE);
        ring.available = ring.available.wrapping_add(1);
        let available = ring.available;
        self.put(entry, &head.to_le_bytes());
        self.put(at + 2, &available.to_le_bytes());
    }

    pub fn set_available_index(&self, queue: usize, index: u16) {
        self.put(Self::queue_at(queue) + AVAILABLE_AT + 2, &index.to_le_bytes());
    }

    pub fn used_index(&self, queue: usize) -> u16 {
        let bytes = self.get(Self::queue_at(queue) + USED_AT + 2, 2);
        u16::from_le_bytes([bytes[0], bytes[1]])
    }

    /// Heads of the chains used since this was last asked.
    pub fn take_used(&mut self, queue: usize) -> Vec<u16> {
        let mut heads = Vec::new();
        while self.rings[queue].used != self.used_index(queue) {
            let entry = u64::from(self.rings[queue].used % QUEUE_SIZE);
            let bytes = self.get(Self::queue_at(queue) + USED_AT + 4 + 8 * entry, 4);
            heads.push(u16::from_le_bytes([bytes[0], bytes[1]]));
            self.rings[queue].used = self.rings[queue].used.wrapping_add(1);
        }
        heads
    }

    /// Asks for a signal for the next used chain.
    fn ask_for_signal(&self, queue: usize) {
        let at = Self::queue_at(queue) + AVAILABLE_AT + 4 + 2 * u64::from(QUEUE_SIZE);
        self.put(at, &self.rings[queue].used.to_le_bytes());
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }

    /// True if the device asked for a kick for a chain made available since this was last asked.
    pub fn wants_kick(&mut self, queue: usize) -> bool {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        let bytes = self.get(Self::queue_at(queue) + USED_AT + 4 + 8 * u64::from(QUEUE_SIZE), 2);
        let event = u16::from_le_bytes([bytes[0], bytes[1]]);
        let ring = &mut self.rings[queue];
        let before = std::mem::replace(&mut ring.kicked, ring.available);
        ring.available.wrapping_sub(event).wrapping_sub(1) < ring.available.wrapping_sub(before)
    }

    /// Puts a request into slot `slot` of a queue, of three descriptors and 128 KiB of data each.
    pub fn put_request(
        &self,
        queue: usize,
        slot: u16,
        kind: u32,
        sector: u64,
        to_device: &[u8],
        to_guest: u32,
    ) {
        let (table, at) = (Self::queue_at(queue), Self::slot_at(queue, slot));
        let head = [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat();
        self.put(at, &head);
        self.put(at + 512, to_device);
        let first = 3 * slot;
        self.put_descriptor(table, first, at, 16, NEXT, first + 1);
        match to_device.len() as u32 {
            0 => self.put_descriptor(table, first + 1, at + 512, to_guest, NEXT | WRITABLE, first + 2),
            length => self.put_descriptor(table, first + 1, at + 512, length, NEXT, first + 2),
        }
        self.put(at + 16, &[0xff]);
        self.put_descriptor(table, first + 2, at + 16, 1, WRITABLE, 0);
    }

    pub fn slot_at(queue: usize, slot: u16) -> u64 {
        DATA_AT + (queue as u64 * 32 + u64::from(slot)) * (128 << 10)
    }

    pub fn status(&self, queue: usize, slot: u16) -> u8 {
        self.get(Self::slot_at(queue, slot) + 16, 1)[0]
    }

    pub fn data(&self, queue: usize, slot: u16, length: usize) -> Vec<u8> {
        self.get(Self::slot_at(queue, slot) + 512, length)
    }
}

/// The record of requests in flight, which the front end keeps for the server.
pub struct Inflight {
    pub file: File,
    /// The message that gives it back.
    body: Vec<u8>,
}

/// A connected front end.
pub struct FrontEnd {
    pub stream: Stream,
    network: Network,
    context: Context,
    pub kicks: Vec<EventFile>,
    pub calls: Vec<EventFile>,
}

pub fn number(value: u64) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

pub fn pair(first: u32, second: u32) -> Vec<u8> {
    [first.to_le_bytes(), second.to_le_bytes()].concat()
}

/// A part of the memory, as a message describes it.
pub fn region(at: u64, length_bytes: u64) -> Vec<u8> {
    [GUEST + at, length_bytes, USER + at, at].map(u64::to_le_bytes).concat()
}

/// A table of one region, which is the whole memory.
pub fn memory_table(length_bytes: u64) -> Vec<u8> {
    [pair(1, 0), region(0, length_bytes)].concat()
}

impl FrontEnd {
    pub async fn connect(network: &Network, context: &Context, socket: &Path) -> Self {
        let stream = network.connect_unix(socket).await.expect("it listens");
        let (network, context) = (network.clone(), context.clone());
        Self { stream, network, context, kicks: Vec::new(), calls: Vec::new() }
    }

    pub fn send(&self, code: u32, flags: u32, body: &[u8], file: Option<&OwnedFd>) {
        let head = [code, 1 | flags, body.len() as u32].map(u32::to_le_bytes).concat();
        // It may have been closed already.
        let _ = self.stream.send_at_once(&[head, body.to_vec()].concat(), file.map(OwnedFd::as_fd));
    }

    /// Sends a message that must be acknowledged.
    pub async fn set(&self, code: u32, body: &[u8], file: Option<&OwnedFd>) {
        self.send(code, 8, body, file);
        let (answered, body, _) = self.answer().await.expect("an acknowledgement");
        assert_eq!((answered, body), (code, number(0)));
    }

    /// As [`Self::set`], for a message that is refused.
    pub async fn send_wrong(&self, code: u32, body: &[u8], file: Option<&OwnedFd>) {
        self.send(code, 8, body, file);
        let (answered, body, _) = self.answer().await.expect("an acknowledgement");
        assert_eq!((answered, body), (code, number(1)));
        self.until_closed().await;
    }

    pub async fn ask(&self, code: u32, body: &[u8]) -> (Vec<u8>, Vec<OwnedFd>) {
        self.send(code, 0, body, None);
        let (answered, body, files) = self.answer().await.expect("an answer");
        assert_eq!(answered, code);
        (body, files)
    }

    pub async fn ask_number(&self, code: u32) -> u64 {
        let (body, _) = self.ask(code, &[]).await;
        u64::from_le_bytes(body.try_into().expect("a number"))
    }

    /// The next answer; `None` at the end of the connection.
    async fn answer(&self) -> Option<(u32, Vec<u8>, Vec<OwnedFd>)> {
        let (mut head, mut files) = ([0; 12], Vec::new());
        if !self.receive(&mut head, &mut files).await {
            return None;
        }
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        assert_eq!(word(4) & 7, 5, "a reply of version 1");
        let mut body = vec![0; word(8) as usize];
        assert!(self.receive(&mut body, &mut files).await || body.is_empty());
        Some((word(0), body, files))
    }

    async fn receive(&self, into: &mut [u8], files: &mut Vec<OwnedFd>) -> bool {
        let mut done = 0;
        while done < into.len() {
            let receiving = pin!(self.stream.receive_with_descriptors(&mut into[done..], files));
            match self.context.time_limit_ns(LONG_NS, receiving).await.expect("an answer in time") {
                Ok(bytes) if bytes > 0 => done += bytes,
                _ => return false,
            }
        }
        true
    }

    pub async fn until_closed(&self) {
        assert!(self.answer().await.is_none(), "the connection ends");
    }

    /// Negotiates features.
    pub async fn negotiate(&self, features: u64) {
        let offered = self.ask_number(1).await;
        assert_eq!(features & !offered, 0, "{offered:#x}");
        self.send(3, 0, &[], None);
        assert_eq!(self.ask_number(15).await, PROTOCOL);
        self.send(16, 0, &number(PROTOCOL), None);
        self.set(2, &number(features), None).await;
    }

    /// All that a guest needs to run.
    pub async fn set_up(&mut self, guest: &Guest, inflight: Option<&Inflight>) {
        self.negotiate(EVENT_IDX | PROTOCOL_FEATURES | FLUSHES | VERSION_1).await;
        self.share(&guest.memory).await;
        if let Some(inflight) = inflight {
            self.set_inflight(inflight).await;
        }
        self.start_queues(guest).await;
    }

    pub async fn share(&self, memory: &File) {
        let file = memory.try_clone().expect("a descriptor").into();
        let length = memory.metadata().expect("a file").len();
        self.set(5, &memory_table(length), Some(&file)).await;
    }

    /// Gets a record of requests in flight.
    pub async fn get_inflight(&self, queues: usize) -> Inflight {
        let wanted =
            [&[0; 16][..], &(queues as u16).to_le_bytes(), &QUEUE_SIZE.to_le_bytes(), &[0; 4]].concat();
        let (body, mut files) = self.ask(31, &wanted).await;
        Inflight { file: files.pop().expect("a file").into(), body }
    }

    /// Gives the record back.
    pub async fn set_inflight(&self, inflight: &Inflight) {
        let file = inflight.file.try_clone().expect("a descriptor").into();
        self.set(32, &inflight.body, Some(&file)).await;
    }

    /// Sets up and starts the guest's queues.
    pub async fn start_queues(&mut self, guest: &Guest) {
        (self.kicks, self.calls) = (Vec::new(), Vec::new());
        for queue in 0..guest.rings.len() {
            let (at, index) = (USER + Guest::queue_at(queue), queue as u32);
            self.set(8, &pair(index, QUEUE_SIZE.into()), None).await;
            self.set(10, &pair(index, guest.rings[queue].used.into()), None).await;
            let addresses = [at, at + USED_AT, at + AVAILABLE_AT, 0].map(u64::to_le_bytes).concat();
            self.set(9, &[pair(index, 0), addresses].concat(), None).await;
            let [kick, call] = [(); 2].map(|()| make_event_file().expect("an eventfd"));
            self.set(13, &number(queue as u64), Some(&call)).await;
            self.set(12, &number(queue as u64), Some(&kick)).await;
            self.kicks.push(self.network.event_file(kick).expect("an eventfd"));
            self.calls.push(self.network.event_file(call).expect("an eventfd"));
            self.set(18, &pair(index, 1), None).await;
        }
    }

    pub async fn kick(&self, queue: usize) {
        self.kicks[queue].signal().await.expect("kicked");
    }

    /// Waits until `count` more chains were used; their heads, in that order.
    pub async fn until_used(&self, guest: &mut Guest, queue: usize, count: usize) -> Vec<u16> {
        let mut heads = guest.take_used(queue);
        while heads.len() < count {
            guest.ask_for_signal(queue);
            heads.extend(guest.take_used(queue));
            if heads.len() >= count {
                break;
            }
            let called = pin!(self.calls[queue].wait());
            self.context.time_limit_ns(LONG_NS, called).await.expect("a signal in time").expect("signalled");
            heads.extend(guest.take_used(queue));
        }
        heads
    }

    /// Executes a request in slot 0 of a queue; its status and data.
    pub async fn execute(
        &self,
        guest: &mut Guest,
        queue: usize,
        (kind, sector): (u32, u64),
        to_device: &[u8],
        to_guest: u32,
    ) -> (u8, Vec<u8>) {
        guest.put_request(queue, 0, kind, sector, to_device, to_guest);
        guest.make_available(queue, 0);
        self.kick(queue).await;
        assert_eq!(self.until_used(guest, queue, 1).await, [0]);
        (guest.status(queue, 0), guest.data(queue, 0, to_guest as usize))
    }
}

/// A front end with a running guest of `queues` queues.
pub async fn running(
    network: &Network,
    context: &Context,
    socket: &Path,
    queues: usize,
) -> (FrontEnd, Guest) {
    let guest = Guest::new(queues);
    let front_end = join(network, context, socket, &guest).await;
    (front_end, guest)
}

/// A front end of a guest that may have run before.
pub async fn join(network: &Network, context: &Context, socket: &Path, guest: &Guest) -> FrontEnd {
    let mut front_end = FrontEnd::connect(network, context, socket).await;
    front_end.set_up(guest, None).await;
    front_end
}
