//! Slots for connections that have not authenticated: few in all, and fewer per address, so that
//! they cannot crowd out authenticated clients.
//!
//! Expected faults: any number of connections, from one address or from many.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::address::Address;

/// Maximum number of unauthenticated connections.
pub(super) const MAX_STRANGERS: usize = 64;
/// Maximum number of unauthenticated connections from one address or local user.
pub(super) const MAX_STRANGERS_OF_ONE: usize = 32;

/// Origin by which connections are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Origin {
    User(u32),
    /// An IPv4 address, or the /64 prefix of an IPv6 address.
    Site(IpAddr),
}

impl From<Address> for Origin {
    fn from(address: Address) -> Self {
        match address {
            Address::Local { user, .. } => Self::User(user),
            Address::Network(address) => Self::Site(match address.ip().to_canonical() {
                IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) & !u128::from(u64::MAX)).into()),
                ip => ip,
            }),
        }
    }
}

/// The slots.
#[derive(Clone, Default)]
pub(super) struct HandshakeSlots(Arc<Mutex<HashMap<Origin, usize>>>);

/// A slot in use; released on drop.
pub(super) struct HandshakeSlot {
    all: HandshakeSlots,
    origin: Origin,
}

impl HandshakeSlots {
    /// Takes a slot, if one is free.
    pub(super) fn place(&self, address: Address) -> Option<HandshakeSlot> {
        let origin = address.into();
        let mut all = self.all();
        let (count, of_one) = (all.values().sum::<usize>(), all.get(&origin).copied().unwrap_or_default());
        if count >= MAX_STRANGERS || of_one >= MAX_STRANGERS_OF_ONE {
            return None;
        }
        *all.entry(origin).or_default() += 1;
        Some(HandshakeSlot { all: self.clone(), origin })
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Origin, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HandshakeSlot {
    fn drop(&mut self) {
        let mut all = self.all.all();
        if let Some(count) = all.get_mut(&self.origin) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.origin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_cannot_take_all_slots() {
        let strangers = HandshakeSlots::default();
        let of = |text: &str| Address::Network(text.parse().expect("an address"));
        let first: Vec<_> = (0..MAX_STRANGERS_OF_ONE)
            .map(|port| strangers.place(of(&format!("[2001:db8::{port:x}]:80"))).expect("a place"))
            .collect();
        assert!(strangers.place(of("[2001:db8::ffff]:80")).is_none(), "the same site");
        let mut others: Vec<_> = (MAX_STRANGERS_OF_ONE..MAX_STRANGERS)
            .map(|number| strangers.place(of(&format!("10.0.0.{number}:80"))).expect("a place"))
            .collect();
        assert!(strangers.place(of("10.0.1.1:80")).is_none(), "all places are taken");
        assert!(strangers.place(Address::Local { user: 5, process: 0 }).is_none());
        others.pop();
        assert!(strangers.place(of("10.0.1.1:80")).is_some());
        drop(first);
        assert!(strangers.place(of("[2001:db8::ffff]:80")).is_some());
        drop(others);
        assert!(strangers.all().is_empty(), "free slots take no memory");
    }
}
