//! Parsing of a client's options from untrusted bytes.

use crate::nbd::wire::protocol::{IHAVEOPT, LONGEST_STRING};

/// Maximum length of an option: names and queries, of which only one is supported here.
pub(crate) const LONGEST_OPTION: u32 = 32 << 10;
/// Length of an option's head.
pub(crate) const OPTION_HEAD_BYTES: usize = 16;

/// Parses the head of an option into its number and the length of its data. `None` if malformed.
pub(crate) fn parse_option_head(bytes: &[u8; OPTION_HEAD_BYTES]) -> Option<(u32, u32)> {
    let mut fields = Fields(bytes);
    if fields.u64()? != IHAVEOPT {
        return None;
    }
    Some((fields.u32()?, fields.u32()?))
}

/// Parses INFO and GO: the export name, and the information requested besides its size. `None` if
/// malformed.
pub(crate) fn parse_info(data: &[u8]) -> Option<(&str, Vec<u16>)> {
    let mut fields = Fields(data);
    let name = fields.string()?;
    let count = fields.u16()?;
    if fields.0.len() != usize::from(count) * 2 {
        return None;
    }
    let wanted = (0..count).map_while(|_| fields.u16()).collect();
    Some((name, wanted))
}

/// Parses LIST_META_CONTEXT and SET_META_CONTEXT: the export name and queries. `None` if malformed.
pub(crate) fn parse_meta_context(data: &[u8]) -> Option<(&str, Vec<&str>)> {
    let mut fields = Fields(data);
    let name = fields.string()?;
    let count = fields.u32()? as usize;
    // Each query takes at least four bytes, so a false count allocates no memory.
    if count > fields.0.len() / 4 {
        return None;
    }
    let mut queries = Vec::with_capacity(count);
    for _ in 0..count {
        queries.push(fields.string()?);
    }
    fields.0.is_empty().then_some((name, queries))
}

/// Reader of the remaining bytes.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    /// Reads a string with a length prefix.
    fn string(&mut self) -> Option<&'a str> {
        let length = self.u32()? as usize;
        if length > LONGEST_STRING {
            return None;
        }
        let (string, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(string).ok()
    }
}
