//! Messages of the vhost-user protocol, as bytes and as Rust values.
//!
//! Expected faults: any bytes; whatever is not a message of the protocol, or not of the length that
//! it must have, is an error.

use std::io;

/// Length of the head of a message.
pub(super) const HEAD_BYTES: usize = 12;
/// Maximum length of what follows the head: a configuration space is the longest.
const MAX_BODY_BYTES: usize = CONFIG_HEAD_BYTES + MAX_CONFIG_BYTES;
/// Maximum length of a configuration space.
pub(super) const MAX_CONFIG_BYTES: usize = 256;
const CONFIG_HEAD_BYTES: usize = 12;

const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const IS_REPLY: u32 = 4;
const NEEDS_REPLY: u32 = 8;
/// In the number of a queue whose descriptor is to be set: there is none.
const NO_DESCRIPTOR: u64 = 0x100;
const QUEUE_MASK: u64 = 0xff;
/// Message of this side: the configuration space has changed.
const CONFIG_HAS_CHANGED: u32 = 2;

/// Protocol features, as bits.
pub(super) mod protocol_feature {
    pub(in super::super) const MQ: u64 = 1;
    pub(in super::super) const REPLY_ACK: u64 = 1 << 3;
    pub(in super::super) const BACKEND_REQ: u64 = 1 << 5;
    pub(in super::super) const CONFIG: u64 = 1 << 9;
    pub(in super::super) const INFLIGHT_SHMFD: u64 = 1 << 12;
    pub(in super::super) const RESET_DEVICE: u64 = 1 << 13;
    pub(in super::super) const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
    pub(in super::super) const STATUS: u64 = 1 << 16;
    /// Those that this side has.
    pub(in super::super) const ALL: u64 =
        MQ | REPLY_ACK | BACKEND_REQ | CONFIG | INFLIGHT_SHMFD | RESET_DEVICE | CONFIGURE_MEM_SLOTS | STATUS;
}

/// The head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub code: u32,
    pub needs_reply: bool,
    pub body_bytes: usize,
}

/// A piece of a guest's memory, in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegionAt {
    pub guest_address: u64,
    pub length_bytes: u64,
    /// Address in the front end's process.
    pub user_address: u64,
    pub file_offset_bytes: u64,
}

/// A message from the front end. Queues are numbers; descriptors come beside the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    GetFeatures,
    SetFeatures(u64),
    SetOwner,
    ResetOwner,
    SetMemory(Vec<RegionAt>),
    AddRegion(RegionAt),
    RemoveRegion(RegionAt),
    GetMaxRegions,
    SetQueueSize { queue: usize, size: u32 },
    SetQueueAddresses { queue: usize, descriptors: u64, used: u64, available: u64 },
    SetQueueBase { queue: usize, base: u32 },
    GetQueueBase { queue: usize },
    SetKick { queue: usize, has_descriptor: bool },
    SetCall { queue: usize, has_descriptor: bool },
    SetError { queue: usize },
    GetProtocolFeatures,
    SetProtocolFeatures(u64),
    GetQueueCount,
    EnableQueue { queue: usize, is_enabled: bool },
    SetBackendSocket,
    GetConfig { offset: usize, length: usize, flags: u32 },
    SetConfig,
    GetInflight { queues: u16, queue_size: u16 },
    SetInflight { length_bytes: u64, offset_bytes: u64, queues: u16, queue_size: u16 },
    ResetDevice,
    SetStatus(u64),
    GetStatus,
}

/// The error of a front end that violates the protocol.
pub(super) fn malformed(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

impl Head {
    pub(super) fn parse(bytes: &[u8; HEAD_BYTES]) -> io::Result<Self> {
        let mut body = Body(bytes);
        let (code, flags, length) = (body.u32()?, body.u32()?, body.u32()?);
        if flags & VERSION_MASK != VERSION || flags & IS_REPLY != 0 {
            return Err(malformed("a message has a wrong version, or is a reply"));
        }
        if length as usize > MAX_BODY_BYTES {
            return Err(malformed(format!("a message of {length} bytes")));
        }
        Ok(Self { code, needs_reply: flags & NEEDS_REPLY != 0, body_bytes: length as usize })
    }
}

/// Numbers from the beginning of a message's body.
struct Body<'a>(&'a [u8]);

impl Body<'_> {
    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk().ok_or_else(|| malformed("a message is too short"))?;
        self.0 = rest;
        Ok(*first)
    }

    fn u64(&mut self) -> io::Result<u64> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn u32(&mut self) -> io::Result<u32> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn u16(&mut self) -> io::Result<u16> {
        Ok(u16::from_le_bytes(self.take()?))
    }

    fn region(&mut self) -> io::Result<RegionAt> {
        Ok(RegionAt {
            guest_address: self.u64()?,
            length_bytes: self.u64()?,
            user_address: self.u64()?,
            file_offset_bytes: self.u64()?,
        })
    }

    /// A queue, and true if a descriptor comes with the message.
    fn queue_and_descriptor(&mut self) -> io::Result<(usize, bool)> {
        let value = self.u64()?;
        Ok(((value & QUEUE_MASK) as usize, value & NO_DESCRIPTOR == 0))
    }
}

impl Message {
    pub(super) fn parse(code: u32, body: &[u8]) -> io::Result<Self> {
        let mut body = Body(body);
        Ok(match code {
            1 => Self::GetFeatures,
            2 => Self::SetFeatures(body.u64()?),
            3 => Self::SetOwner,
            4 => Self::ResetOwner,
            5 => {
                let (count, _padding) = (body.u32()?, body.u32()?);
                Self::SetMemory((0..count).map(|_| body.region()).collect::<io::Result<_>>()?)
            }
            8 => Self::SetQueueSize { queue: body.u32()? as usize, size: body.u32()? },
            9 => {
                let (queue, _flags) = (body.u32()? as usize, body.u32()?);
                let (descriptors, used, available) = (body.u64()?, body.u64()?, body.u64()?);
                Self::SetQueueAddresses { queue, descriptors, used, available }
            }
            10 => Self::SetQueueBase { queue: body.u32()? as usize, base: body.u32()? },
            11 => Self::GetQueueBase { queue: body.u32()? as usize },
            12 => {
                let (queue, has_descriptor) = body.queue_and_descriptor()?;
                Self::SetKick { queue, has_descriptor }
            }
            13 => {
                let (queue, has_descriptor) = body.queue_and_descriptor()?;
                Self::SetCall { queue, has_descriptor }
            }
            14 => Self::SetError { queue: body.queue_and_descriptor()?.0 },
            15 => Self::GetProtocolFeatures,
            16 => Self::SetProtocolFeatures(body.u64()?),
            17 => Self::GetQueueCount,
            18 => Self::EnableQueue { queue: body.u32()? as usize, is_enabled: body.u32()? != 0 },
            21 => Self::SetBackendSocket,
            24 => {
                let (offset, length, flags) = (body.u32()? as usize, body.u32()? as usize, body.u32()?);
                Self::GetConfig { offset, length, flags }
            }
            25 => Self::SetConfig,
            31 | 32 => {
                let (length_bytes, offset_bytes) = (body.u64()?, body.u64()?);
                let (queues, queue_size) = (body.u16()?, body.u16()?);
                match code {
                    31 => Self::GetInflight { queues, queue_size },
                    _ => Self::SetInflight { length_bytes, offset_bytes, queues, queue_size },
                }
            }
            34 => Self::ResetDevice,
            36 => Self::GetMaxRegions,
            37 | 38 => {
                let _padding = body.u64()?;
                let region = body.region()?;
                if code == 37 { Self::AddRegion(region) } else { Self::RemoveRegion(region) }
            }
            39 => Self::SetStatus(body.u64()?),
            40 => Self::GetStatus,
            other => return Err(malformed(format!("message {other} is not supported"))),
        })
    }
}

fn with_head(code: u32, flags: u32, body: &[u8]) -> Vec<u8> {
    [&code.to_le_bytes()[..], &flags.to_le_bytes(), &(body.len() as u32).to_le_bytes(), body].concat()
}

/// The answer to a message.
pub(super) fn reply(code: u32, body: &[u8]) -> Vec<u8> {
    with_head(code, VERSION | IS_REPLY, body)
}

/// The answer to [`Message::GetConfig`]; empty contents refuse it.
pub(super) fn config_reply(code: u32, offset: usize, flags: u32, contents: &[u8]) -> Vec<u8> {
    let head = [offset as u32, contents.len() as u32, flags].map(u32::to_le_bytes).concat();
    reply(code, &[&head[..], contents].concat())
}

/// The answer to [`Message::GetInflight`].
pub(super) fn inflight_reply(code: u32, length_bytes: u64, queues: u16, queue_size: u16) -> Vec<u8> {
    let counts = [queues.to_le_bytes(), queue_size.to_le_bytes(), [0; 2], [0; 2]].concat();
    reply(code, &[&length_bytes.to_le_bytes()[..], &[0; 8], &counts].concat())
}

/// The message that the configuration space has changed.
pub(super) fn config_has_changed() -> Vec<u8> {
    with_head(CONFIG_HAS_CHANGED, VERSION, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(flags: u32, length: u32) -> io::Result<Head> {
        let bytes = [1, flags, length].map(u32::to_le_bytes).concat();
        Head::parse(bytes.as_slice().try_into().expect("a head"))
    }

    #[test]
    fn heads_have_a_version_and_a_bounded_length() {
        let parsed = head(VERSION | NEEDS_REPLY, 8).expect("a head");
        assert_eq!(parsed, Head { code: 1, needs_reply: true, body_bytes: 8 });
        head(0, 8).expect_err("no version");
        head(VERSION | IS_REPLY, 8).expect_err("a reply");
        head(VERSION, MAX_BODY_BYTES as u32).expect("the longest");
        head(VERSION, MAX_BODY_BYTES as u32 + 1).expect_err("too long");
        head(VERSION, u32::MAX).expect_err("too long");
    }

    #[test]
    fn messages_of_any_length_are_parsed_or_refused() {
        for code in 0..64 {
            for length in 0..MAX_BODY_BYTES {
                for byte in [0, 1, 0xff] {
                    // Either is fine; a panic is not.
                    let _ = Message::parse(code, &vec![byte; length]);
                }
            }
        }
        assert!(Message::parse(5, &[0xff; 264]).is_err(), "more regions than there are bytes");
        let table = [&1_u32.to_le_bytes()[..], &[0; 4], &[7; 32]].concat();
        let Ok(Message::SetMemory(regions)) = Message::parse(5, &table) else { panic!("a table") };
        assert_eq!(regions.len(), 1);
    }

    #[test]
    fn descriptors_may_be_left_out() {
        let kick = |value: u64| Message::parse(12, &value.to_le_bytes()).expect("a kick");
        assert_eq!(kick(3), Message::SetKick { queue: 3, has_descriptor: true });
        assert_eq!(kick(0x103), Message::SetKick { queue: 3, has_descriptor: false });
    }
}
