//! Places for connections that have not agreed on an export yet: few, and fewer still for one
//! address, so that they cannot take those of clients that use volumes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

/// The places that are taken, by address: an IPv4 address, or the 64 bits of an IPv6 address that a
/// site has.
#[derive(Clone, Default)]
pub(crate) struct HandshakeSlots(Rc<RefCell<HashMap<IpAddr, usize>>>);

/// One of the places; free again when this is dropped.
pub(crate) struct HandshakeSlot {
    all: HandshakeSlots,
    site: IpAddr,
}

impl HandshakeSlots {
    /// A place for a client from there, if there is one.
    pub(in crate::nbd) fn place(
        &self,
        address: SocketAddr,
        most: usize,
        most_of_one: usize,
    ) -> Option<HandshakeSlot> {
        let site = match address.ip().to_canonical() {
            IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) & !u128::from(u64::MAX)).into()),
            ip => ip,
        };
        let mut all = self.0.borrow_mut();
        let of_one = all.get(&site).copied().unwrap_or_default();
        if all.values().sum::<usize>() >= most || of_one >= most_of_one {
            return None;
        }
        all.insert(site, of_one + 1);
        drop(all);
        Some(HandshakeSlot { all: self.clone(), site })
    }
}

impl Drop for HandshakeSlot {
    fn drop(&mut self) {
        let mut all = self.all.0.borrow_mut();
        if let Some(count) = all.get_mut(&self.site) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.site);
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
        let place = |text: &str| strangers.place(text.parse().expect("an address"), 3, 2);
        let _first = place("10.0.0.1:1").expect("a place");
        let second = place("10.0.0.1:2").expect("a place");
        assert!(place("10.0.0.1:3").is_none());
        let _third = place("10.0.0.2:1").expect("a place");
        assert!(place("10.0.0.3:1").is_none(), "all are taken");
        drop(second);
        assert!(place("10.0.0.3:1").is_some());
    }
}
