//! Which host this is, as pools record it: by what the system calls it, so that another machine
//! that reaches the same drives does not take a pool for its own.
//!
//! Expected faults: systems without an identity of their own (containers), or several that were
//! copied with the same one; for them `STRIPEWISE_HOST` says it.

use std::path::Path;
use std::sync::OnceLock;

use stripewise_engine::pool::Host;

/// Where the system keeps its identity, the first that is there.
const IDENTITIES: [&str; 2] = ["/etc/machine-id", "/var/lib/dbus/machine-id"];
const NAME: &str = "/proc/sys/kernel/hostname";

/// This host; the same for as long as the process lives.
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

/// FNV-1a of 64 bits. The system asks that its identity not be told as it is; half of the bits do
/// not give it back.
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

    /// Recorded in pools: never to be changed.
    const HASH: u64 = 0x75e2_d7fd_8c3b_aaa2;
}
