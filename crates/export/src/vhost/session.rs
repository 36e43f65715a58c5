//! One front end: its messages, which set up the device's memory and queues, and their answers.
//!
//! The messages are parsed here and not by the crate `vhost`, whose reads wait for the front end
//! and would stop all others of this thread; for the same reason the crates `virtio-queue` and
//! `vm-memory` are not used: a chain that is malformed ends silently there, and memory that is
//! truncated ends the process.
//!
//! Expected faults: messages in any order and with any numbers, too many or too few descriptors, a
//! front end that leaves at any moment or stops within a message: an error, which ends this
//! connection. Requests in flight are finished all the same.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::rc::Rc;

use stripewise_runtime::{EventFile, Network, Stream};

use super::config::{MAX_QUEUES, config_part, feature, features};
use super::device::Device;
use super::inflight::{InflightArea, make_area};
use super::memory::{GuestMemory, MAX_REGIONS, Region};
use super::queue::{Queue, QueueStart};
use super::ring::{Ring, RingAt};
use super::wire::{
    HEAD_BYTES, Head, MAX_CONFIG_BYTES, Message, RegionAt, config_reply, inflight_reply, malformed,
    protocol_feature, reply,
};
use crate::block::Export;

/// A queue as the front end has set it up.
struct Slot<X> {
    at: RingAt,
    /// Available chains that were taken before the queue starts.
    base: u16,
    kick: Option<Rc<EventFile>>,
    call: Option<Rc<EventFile>>,
    is_enabled: bool,
    running: Option<Rc<Queue<X>>>,
}

impl<X> Default for Slot<X> {
    fn default() -> Self {
        Self { at: RingAt::default(), base: 0, kick: None, call: None, is_enabled: false, running: None }
    }
}

/// The socket on which the front end takes messages of this side.
#[derive(Clone, Default)]
pub(super) struct BackendSocket(pub Rc<RefCell<Option<Stream>>>);

/// The state of a connection.
pub(super) struct Session<X> {
    device: Rc<Device<X>>,
    network: Network,
    /// Time for the rest of a message that has begun, ns.
    stall_ns: u64,
    backend_socket: BackendSocket,
    features: u64,
    protocol: u64,
    status: u64,
    memory: Rc<GuestMemory>,
    inflight: Option<InflightArea>,
    slots: Vec<Slot<X>>,
}

/// The answer to a message.
enum Answer {
    /// An acknowledgement, if the front end asks for one: 0, or 1 for a refusal.
    Acknowledgement(u64),
    Number(u64),
    Bytes(Vec<u8>, Option<OwnedFd>),
}

const DONE: Answer = Answer::Acknowledgement(0);

impl<X: Export> Session<X> {
    pub(super) fn new(
        device: Rc<Device<X>>,
        network: Network,
        stall_ns: u64,
        backend_socket: BackendSocket,
    ) -> Self {
        Self {
            device,
            network,
            stall_ns,
            backend_socket,
            features: 0,
            protocol: 0,
            status: 0,
            memory: Rc::default(),
            inflight: None,
            slots: (0..MAX_QUEUES).map(|_| Slot::default()).collect(),
        }
    }

    /// Reads and answers messages until the front end leaves.
    pub(super) async fn run(&mut self, stream: &Stream) -> io::Result<()> {
        loop {
            let mut descriptors = Vec::new();
            let mut head = [0; HEAD_BYTES];
            let begun = stream.receive_with_descriptors(&mut head, &mut descriptors).await?;
            if begun == 0 {
                return Ok(());
            }
            let message = {
                let rest = pin!(read_rest(stream, head, begun, &mut descriptors));
                let limited = self.device.context.time_limit_ns(self.stall_ns, rest).await;
                limited.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "it stopped within a message"))?
            };
            let (head, body) = message?;
            let wants_acknowledgement = head.needs_reply && self.protocol & protocol_feature::REPLY_ACK != 0;
            let handled = match Message::parse(head.code, &body) {
                Ok(message) => self.handle(head.code, message, descriptors).await,
                Err(error) => Err(error),
            };
            match handled {
                Ok(Answer::Bytes(bytes, file)) => {
                    stream.send_at_once(&bytes, file.as_ref().map(OwnedFd::as_fd))?;
                }
                Ok(Answer::Number(number)) => {
                    stream.send_at_once(&reply(head.code, &number.to_le_bytes()), None)?;
                }
                Ok(Answer::Acknowledgement(number)) if wants_acknowledgement => {
                    stream.send_at_once(&reply(head.code, &number.to_le_bytes()), None)?;
                }
                Ok(Answer::Acknowledgement(_)) => {}
                Err(error) => {
                    if wants_acknowledgement {
                        stream.send_at_once(&reply(head.code, &1_u64.to_le_bytes()), None)?;
                    }
                    return Err(error);
                }
            }
        }
    }

    async fn handle(&mut self, code: u32, message: Message, files: Vec<OwnedFd>) -> io::Result<Answer> {
        let mut files = files.into_iter();
        let mut file = || files.next().ok_or_else(|| malformed("a descriptor is missing"));
        Ok(match message {
            Message::GetFeatures => Answer::Number(features(&*self.device.export)),
            Message::SetFeatures(chosen) => {
                let offered = features(&*self.device.export) | feature::READ_ONLY;
                if chosen & !offered != 0 {
                    return Err(malformed(format!("features {chosen:#x} were not offered")));
                }
                self.features = chosen;
                DONE
            }
            Message::GetProtocolFeatures => Answer::Number(protocol_feature::ALL),
            Message::SetProtocolFeatures(chosen) => {
                self.protocol = chosen & protocol_feature::ALL;
                DONE
            }
            Message::SetOwner => DONE,
            Message::ResetOwner | Message::ResetDevice => {
                self.reset().await;
                DONE
            }
            Message::SetStatus(status) => {
                self.status = status & 0xff;
                if self.status == 0 {
                    self.reset().await;
                }
                DONE
            }
            Message::GetStatus => Answer::Number(self.status),
            Message::SetMemory(places) => {
                let regions = places.into_iter().map(|place| Region::new(place, file()?));
                let memory = GuestMemory::new(regions.collect::<io::Result<_>>()?)?;
                self.set_memory(memory).await?;
                DONE
            }
            Message::AddRegion(place) => {
                let mut regions = self.memory.regions().to_vec();
                regions.push(Region::new(place, file()?)?);
                self.set_memory(GuestMemory::new(regions)?).await?;
                DONE
            }
            Message::RemoveRegion(place) => self.remove_region(&place).await?,
            Message::GetMaxRegions => Answer::Number(MAX_REGIONS as u64),
            Message::GetQueueCount => Answer::Number(MAX_QUEUES as u64),
            Message::SetBackendSocket => {
                let socket = self.network.adopt_unix(file()?);
                *self.backend_socket.0.borrow_mut() = Some(socket);
                DONE
            }
            Message::GetConfig { offset, length, flags } => {
                let is_within = length <= MAX_CONFIG_BYTES && offset <= MAX_CONFIG_BYTES - length;
                let part =
                    if is_within { config_part(&*self.device.export, offset, length) } else { Vec::new() };
                Answer::Bytes(config_reply(code, offset, flags, &part), None)
            }
            // No field of it can be written.
            Message::SetConfig => Answer::Acknowledgement(1),
            Message::GetInflight { queues, queue_size } => {
                let (area, length_bytes) = make_area(queues, queue_size)?;
                Answer::Bytes(inflight_reply(code, length_bytes, queues, queue_size), Some(area))
            }
            Message::SetInflight { length_bytes, offset_bytes, queues, queue_size } => {
                let area = InflightArea::new(file()?, offset_bytes, length_bytes, queues, queue_size)?;
                self.inflight = Some(area);
                DONE
            }
            of_queue => self.handle_of_queue(of_queue, file).await?,
        })
    }

    async fn handle_of_queue(
        &mut self,
        message: Message,
        mut file: impl FnMut() -> io::Result<OwnedFd>,
    ) -> io::Result<Answer> {
        let queue = match &message {
            Message::SetQueueSize { queue, .. }
            | Message::SetQueueAddresses { queue, .. }
            | Message::SetQueueBase { queue, .. }
            | Message::GetQueueBase { queue }
            | Message::SetKick { queue, .. }
            | Message::SetCall { queue, .. }
            | Message::SetError { queue }
            | Message::EnableQueue { queue, .. } => *queue,
            _ => unreachable!("handled by the caller"),
        };
        if queue >= MAX_QUEUES {
            return Err(malformed(format!("queue {queue}; a device has {MAX_QUEUES}")));
        }
        let slot = &mut self.slots[queue];
        match message {
            Message::SetQueueSize { size, .. } => {
                slot.at.size =
                    u16::try_from(size).map_err(|_| malformed(format!("a queue of {size} entries")))?;
            }
            Message::SetQueueAddresses { descriptors, used, available, .. } => {
                slot.at = RingAt { size: slot.at.size, descriptors, used, available };
                if slot.running.is_some() {
                    // A front end repeats the addresses where they mean the same.
                    self.stop(queue).await;
                }
            }
            Message::SetQueueBase { base, .. } => slot.base = base as u16,
            Message::GetQueueBase { .. } => {
                self.stop(queue).await;
                let slot = &mut self.slots[queue];
                (slot.kick, slot.call) = (None, None);
                let state = [queue as u32, slot.base.into()].map(u32::to_le_bytes).concat();
                return Ok(Answer::Bytes(reply(GET_QUEUE_BASE, &state), None));
            }
            Message::SetKick { has_descriptor, .. } => {
                if !has_descriptor {
                    return Err(malformed("a queue without kicks is not supported"));
                }
                let kick = Rc::new(self.network.event_file(file()?)?);
                self.stop(queue).await;
                self.slots[queue].kick = Some(kick);
            }
            Message::SetCall { has_descriptor, .. } => {
                let file = if has_descriptor { Some(file()?) } else { None };
                slot.call = file.map(|file| self.network.event_file(file).map(Rc::new)).transpose()?;
                if let Some(running) = &slot.running {
                    running.set_call(slot.call.clone());
                }
            }
            Message::EnableQueue { is_enabled, .. } => {
                slot.is_enabled = is_enabled;
                if !is_enabled {
                    self.stop(queue).await;
                }
            }
            // Errors end the connection instead.
            Message::SetError { .. } => {}
            _ => unreachable!("they have no queue"),
        }
        self.start_if_ready(queue)?;
        Ok(DONE)
    }

    /// Starts a queue that is set up, unless it runs.
    fn start_if_ready(&mut self, queue: usize) -> io::Result<()> {
        let slot = &mut self.slots[queue];
        // Without the feature there is no message to enable a queue.
        let is_enabled = slot.is_enabled || self.features & feature::PROTOCOL_FEATURES == 0;
        let is_set_up = slot.at.size > 0 && slot.at.descriptors > 0 && !self.memory.regions().is_empty();
        let Some(kick) = slot.kick.clone().filter(|_| is_enabled && is_set_up && slot.running.is_none())
        else {
            return Ok(());
        };
        let has_event_idx = self.features & feature::EVENT_IDX != 0;
        let ring = Ring::new(self.memory.clone(), slot.at, has_event_idx, slot.base)?;
        let log = match &self.inflight {
            None => None,
            Some(area) => {
                let log = area.log(queue, slot.at.size);
                Some(log.ok_or_else(|| malformed("a queue has no room in the record of requests in flight"))?)
            }
        };
        let is_durable = self.features & feature::FLUSH == 0;
        let start = QueueStart { ring, log, is_durable, kick, call: slot.call.clone() };
        slot.running = Some(Queue::start(&self.device, start));
        Ok(())
    }

    /// Stops a queue, if it runs; its requests in flight are finished.
    async fn stop(&mut self, queue: usize) {
        let slot = &mut self.slots[queue];
        if let Some(running) = slot.running.clone() {
            slot.base = running.stop().await;
            slot.running = None;
        }
    }

    /// Stops all queues.
    pub(super) async fn stop_all(&mut self) {
        for queue in 0..self.slots.len() {
            self.stop(queue).await;
        }
    }

    async fn reset(&mut self) {
        self.stop_all().await;
        self.slots.iter_mut().for_each(|slot| *slot = Slot::default());
        self.features = 0;
    }

    async fn remove_region(&mut self, place: &RegionAt) -> io::Result<Answer> {
        let mut regions = self.memory.regions().to_vec();
        let before = regions.len();
        regions.retain(|region| !region.is_at(place));
        if regions.len() == before {
            return Err(malformed("a region to be removed is not there"));
        }
        self.set_memory(GuestMemory::new(regions)?).await?;
        Ok(DONE)
    }

    /// Goes on with another memory: running queues stop, and start again in it.
    async fn set_memory(&mut self, memory: GuestMemory) -> io::Result<()> {
        let running: Vec<usize> =
            (0..self.slots.len()).filter(|queue| self.slots[*queue].running.is_some()).collect();
        self.stop_all().await;
        self.memory = Rc::new(memory);
        running.into_iter().try_for_each(|queue| self.start_if_ready(queue))
    }
}

/// Code of the message whose answer has the same form as the message.
const GET_QUEUE_BASE: u32 = 11;

/// The rest of a message, of whose head `begun` bytes are there.
async fn read_rest(
    stream: &Stream,
    mut head: [u8; HEAD_BYTES],
    begun: usize,
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<(Head, Vec<u8>)> {
    fill(stream, &mut head[begun..], descriptors).await?;
    let head = Head::parse(&head)?;
    let mut body = vec![0; head.body_bytes];
    fill(stream, &mut body, descriptors).await?;
    Ok((head, body))
}

async fn fill(stream: &Stream, mut into: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<()> {
    while !into.is_empty() {
        let received = stream.receive_with_descriptors(into, descriptors).await?;
        if received == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it left within a message"));
        }
        into = &mut into[received..];
    }
    Ok(())
}
