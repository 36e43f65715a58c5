//! The identity of this host as pools record it, from the system's machine id, so that another
//! machine with access to the same drives does not use the pool as its own.
//!
//! Expected faults: systems without a machine id (containers), or clones that share one; for these
//! `STRIPEWISE_HOST` sets the identity.

use std::path::Path;
use std::sync::OnceLock;

use stripewise_pool::Host;

/// Files with the machine id; the first that exists counts.
const IDENTITIES: [&str; 2] = ["/etc/machine-id", "/var/lib/dbus/machine-id"];
const NAME: &str = "/proc/sys/kernel/hostname";

/// This host; constant for the lifetime of the process.
pub(crate) fn this_host() -> Host {
    static HOST: OnceLock<Host> = OnceLock::new();
    *HOST.get_or_init(|| {
        let named = std::env::var("STRIPEWISE_HOST").ok().filter(|name| !name.is_empty());
        let name = named.clone().or_else(|| text_of(Path::new(NAME))).unwrap_or_else(|| "unknown".to_owned());
        let identity = IDENTITIES.iter().find_map(|path| text_of(Path::new(path)));
        let identity = named.or(identity).unwrap_or_else(|| name.clone());
        Host::new(hash(&identity), &name)
    })
}

fn text_of(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// FNV-1a of 64 bits. The machine id must not be disclosed; a hash of half its bits cannot be
/// reversed to it.
fn hash(identity: &str) -> u64 {
    let bytes = "stripewise host ".bytes().chain(identity.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_identity_gives_the_same_number_in_every_version() {
        assert_eq!(super::hash("0123456789abcdef0123456789abcdef"), HASH);
        assert_ne!(super::hash("a"), super::hash("b"));
    }

    /// Recorded in pools, so it must never change.
    const HASH: u64 = 0x75e2_d7fd_8c3b_aaa2;
}
