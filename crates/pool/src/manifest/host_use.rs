//! The record of the host that uses a pool.

use serde::{Deserialize, Serialize};

/// Longest name of a host, bytes.
const MAX_NAME_BYTES: usize = 64;

/// Identity and name of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    id: u64,
    name: [u8; MAX_NAME_BYTES],
    name_bytes: usize,
}

impl Host {
    /// `id` distinguishes hosts, `name` is for display. Control characters in the name are
    /// replaced; it is truncated to 64 bytes.
    pub fn new(id: u64, name: &str) -> Self {
        let (mut bytes, mut length) = ([0; MAX_NAME_BYTES], 0);
        for c in name.chars().map(|c| if c.is_control() { '?' } else { c }) {
            if length + c.len_utf8() > MAX_NAME_BYTES {
                break;
            }
            length += c.encode_utf8(&mut bytes[length..]).len();
        }
        Self { id, name: bytes, name_bytes: length }
    }

    /// Name for display.
    pub fn name(&self) -> &str {
        std::str::from_utf8(&self.name[..self.name_bytes]).unwrap_or_default()
    }

    pub(crate) fn id_text(&self) -> String {
        format!("{:016x}", self.id)
    }
}

/// The host that uses a pool, or used it last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostUse {
    /// Host identity: 16 hexadecimal digits.
    pub id: String,
    /// Name that the host gives itself.
    pub name: String,
    /// Time of last use, seconds since 1970, to the hour.
    pub unix_s: u64,
    /// The pool was exported and belongs to no host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exported: bool,
}

impl HostUse {
    /// True if a host other than this one uses the pool.
    pub fn is_other(&self, host: &Host) -> bool {
        !self.exported && self.id != host.id_text()
    }

    /// Checks a record that was read from a drive.
    pub(crate) fn check(&self) -> Result<(), String> {
        let is_id = self.id.len() == 16 && self.id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_name = self.name.len() <= MAX_NAME_BYTES && !self.name.contains(char::is_control);
        if is_id && is_name { Ok(()) } else { Err("the host record is invalid".to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_name_is_sanitised_and_truncated() {
        let name = |text: &str| Host::new(7, text).name().to_owned();
        assert_eq!(name("alpha\u{1b}[2J"), "alpha?[2J");
        assert_eq!(name(&"ä".repeat(40)), "ä".repeat(32));
        let of = |host: &Host, exported| HostUse {
            id: host.id_text(),
            name: host.name().to_owned(),
            unix_s: 1,
            exported,
        };
        let (one, two) = (Host::new(1, "one"), Host::new(2, "two"));
        assert_eq!(of(&one, false).check(), Ok(()));
        assert!(of(&one, false).is_other(&two) && !of(&one, false).is_other(&one));
        assert!(!of(&one, true).is_other(&two));
        let bad =
            |id: &str, name: &str| HostUse { id: id.into(), name: name.into(), unix_s: 0, exported: false };
        assert!(bad("12", "x").check().is_err());
        assert!(bad("0000000000000001", "x\u{1b}").check().is_err());
    }
}
