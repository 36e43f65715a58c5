//! The identity of a client, as far as a listener knows it. Its use of resources is counted by it,
//! and it is recognised by it when it reconnects.

use std::net::{IpAddr, SocketAddr};

/// A client. Two programs behind one address, or of one user at one socket file, are one client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClientId {
    /// An IPv4 address, or the /64 of an IPv6 address.
    Site(IpAddr),
    /// A verified certificate, as its bytes.
    Certificate(Vec<u8>),
    /// A user of this machine at a socket file.
    User {
        /// The socket file.
        place: String,
        /// The user's number.
        user: u32,
    },
    /// A token, by its name.
    Named(String),
    /// No identity is known.
    Unknown,
}

impl From<SocketAddr> for ClientId {
    fn from(address: SocketAddr) -> Self {
        Self::Site(match address.ip().to_canonical() {
            IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) & !u128::from(u64::MAX)).into()),
            ip => ip,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_of_ipv6_is_one_client() {
        let of = |text: &str| ClientId::from(text.parse::<SocketAddr>().expect("an address"));
        assert_eq!(of("[2001:db8::1]:80"), of("[2001:db8::ffff:1]:81"));
        assert_ne!(of("[2001:db8::1]:80"), of("[2001:db8:0:1::1]:80"));
        assert_eq!(of("[::ffff:10.0.0.1]:80"), of("10.0.0.1:5"));
        assert_ne!(of("10.0.0.1:5"), of("10.0.0.2:5"));
    }
}
