//! A client's requests as plain data, parsed from arbitrary bytes and validated.

use crate::nbd::wire::errors::Failure;
use crate::nbd::wire::negotiation::Terms;
use crate::nbd::wire::protocol::*;

/// Bytes of a request without what is to be written.
pub(crate) const REQUEST_BYTES: usize = 28;

/// A request as the client sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub flags: u16,
    pub kind: u16,
    pub cookie: u64,
    pub offset: u64,
    pub length: u32,
}

/// A validated command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Read,
    Write { fua: bool },
    Flush,
    Trim { fua: bool },
    Cache,
    WriteZeroes { fua: bool, may_punch: bool, only_fast: bool },
    BlockStatus { only_one: bool },
}

impl Command {
    /// True if success implies for the client that earlier writes are in the volume.
    pub(in crate::nbd) fn relies_on_writes(&self) -> bool {
        !matches!(self, Self::Read | Self::Cache | Self::BlockStatus { .. })
    }
}

/// Limits that requests are validated against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub terms: Terms,
    pub size_bytes: u64,
    pub read_only: bool,
}

impl Request {
    /// `None` where these bytes are no request: then nothing that follows can be understood either.
    pub(in crate::nbd) fn parse(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        if u32::from_be_bytes(*magic) != REQUEST_MAGIC {
            return None;
        }
        let (flags, rest) = rest.split_first_chunk::<2>()?;
        let (kind, rest) = rest.split_first_chunk::<2>()?;
        let (cookie, rest) = rest.split_first_chunk::<8>()?;
        let (offset, rest) = rest.split_first_chunk::<8>()?;
        let (length, _) = rest.split_first_chunk::<4>()?;
        Some(Self {
            flags: u16::from_be_bytes(*flags),
            kind: u16::from_be_bytes(*kind),
            cookie: u64::from_be_bytes(*cookie),
            offset: u64::from_be_bytes(*offset),
            length: u32::from_be_bytes(*length),
        })
    }

    /// Bytes that follow the request, whatever is thought of it.
    pub(in crate::nbd) fn payload_bytes(&self) -> u32 {
        if self.kind == CMD_WRITE { self.length } else { 0 }
    }

    /// Bytes that it has to transfer, one way or the other; none where it is longer than allowed,
    /// since then it is refused.
    pub(in crate::nbd) fn transfer_bytes(&self) -> u32 {
        let transfers = matches!(self.kind, CMD_READ | CMD_WRITE) && self.length <= LONGEST_TRANSFER;
        if transfers { self.length } else { 0 }
    }

    /// Validates the request: the command, or the reason of the refusal.
    pub(in crate::nbd) fn command(&self, rules: &Rules) -> Result<Command, Failure> {
        let fua = self.flags & CMD_FLAG_FUA != 0;
        let (command, known_flags) = match self.kind {
            CMD_READ => (Command::Read, if rules.terms.structured { CMD_FLAG_DF } else { 0 }),
            CMD_WRITE => (Command::Write { fua }, 0),
            CMD_FLUSH => (Command::Flush, 0),
            CMD_TRIM => (Command::Trim { fua }, 0),
            CMD_CACHE => (Command::Cache, 0),
            CMD_WRITE_ZEROES => {
                let may_punch = self.flags & CMD_FLAG_NO_HOLE == 0;
                let only_fast = self.flags & CMD_FLAG_FAST_ZERO != 0;
                let command = Command::WriteZeroes { fua, may_punch, only_fast };
                (command, CMD_FLAG_NO_HOLE | CMD_FLAG_FAST_ZERO)
            }
            CMD_BLOCK_STATUS if rules.terms.block_status => {
                (Command::BlockStatus { only_one: self.flags & CMD_FLAG_REQ_ONE != 0 }, CMD_FLAG_REQ_ONE)
            }
            CMD_BLOCK_STATUS => {
                return Err(Failure::new(EINVAL, "no metadata context was agreed upon for this export"));
            }
            kind => return Err(Failure::new(EINVAL, format!("command {kind} is not known here"))),
        };
        // Clients are known to set FUA everywhere.
        let unknown = self.flags & !(known_flags | CMD_FLAG_FUA);
        if unknown != 0 {
            return Err(Failure::new(
                EINVAL,
                format!("flags {unknown:#x} do not belong to command {}", self.kind),
            ));
        }
        let writes =
            matches!(command, Command::Write { .. } | Command::Trim { .. } | Command::WriteZeroes { .. });
        if writes && rules.read_only {
            return Err(Failure::new(EPERM, "the export is read-only"));
        }
        if command == Command::Flush {
            return Ok(command);
        }
        let end = self.offset.saturating_add(u64::from(self.length));
        if end > rules.size_bytes {
            let errno = if writes { ENOSPC } else { EINVAL };
            let (length, offset, size) = (self.length, self.offset, rules.size_bytes);
            let why = format!("{length} bytes at {offset} lie beyond the export's end at {size}");
            return Err(Failure::new(errno, why));
        }
        let transfers = matches!(command, Command::Read | Command::Write { .. });
        if transfers && self.length > LONGEST_TRANSFER {
            let why = format!("{} bytes in one request; at most {LONGEST_TRANSFER} are allowed", self.length);
            return Err(Failure::new(EOVERFLOW, why));
        }
        if matches!(command, Command::BlockStatus { .. }) && self.length == 0 {
            return Err(Failure::new(EINVAL, "the status of no bytes"));
        }
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules {
        terms: Terms { structured: true, block_status: true },
        size_bytes: 1 << 30,
        read_only: false,
    };

    fn request(kind: u16, flags: u16, offset: u64, length: u32) -> Request {
        Request { flags, kind, cookie: 7, offset, length }
    }

    fn errno(request: Request, rules: &Rules) -> u32 {
        request.command(rules).expect_err("refused").errno
    }

    #[test]
    fn invalid_requests_get_the_matching_errno() {
        assert_eq!(errno(request(99, 0, 0, 0), &RULES), EINVAL);
        assert_eq!(errno(request(CMD_READ, 0, 1 << 30, 1), &RULES), EINVAL);
        assert_eq!(errno(request(CMD_WRITE, 0, (1 << 30) - 1, 2), &RULES), ENOSPC);
        assert_eq!(errno(request(CMD_READ, 0, u64::MAX, 1), &RULES), EINVAL);
        assert_eq!(errno(request(CMD_READ, 0, 0, LONGEST_TRANSFER + 1), &RULES), EOVERFLOW);
        assert_eq!(errno(request(CMD_READ, CMD_FLAG_NO_HOLE, 0, 1), &RULES), EINVAL);
        assert_eq!(errno(request(CMD_BLOCK_STATUS, 0, 0, 0), &RULES), EINVAL);
        let read_only = Rules { read_only: true, ..RULES };
        for kind in [CMD_WRITE, CMD_TRIM, CMD_WRITE_ZEROES] {
            assert_eq!(errno(request(kind, 0, 0, 512), &read_only), EPERM);
        }
        let simple = Rules { terms: Terms { structured: false, block_status: false }, ..RULES };
        assert_eq!(errno(request(CMD_BLOCK_STATUS, 0, 0, 512), &simple), EINVAL);
        assert_eq!(errno(request(CMD_READ, CMD_FLAG_DF, 0, 512), &simple), EINVAL);
    }

    #[test]
    fn the_longest_and_the_last_request_are_allowed() {
        assert_eq!(request(CMD_READ, CMD_FLAG_DF, 0, LONGEST_TRANSFER).command(&RULES), Ok(Command::Read));
        assert_eq!(request(CMD_READ, CMD_FLAG_FUA, (1 << 30) - 1, 1).command(&RULES), Ok(Command::Read));
        let zeroes = request(CMD_WRITE_ZEROES, CMD_FLAG_NO_HOLE, 0, 1 << 30).command(&RULES);
        assert_eq!(zeroes, Ok(Command::WriteZeroes { fua: false, may_punch: false, only_fast: false }));
        assert_eq!(request(CMD_FLUSH, 0, 0, 0).command(&RULES), Ok(Command::Flush));
    }
}
