//! Access rules: the exports visible to a client, by the listen address of its connection and by
//! its certificate. Other exports do not exist for it, by name or in lists.
//!
//! Expected faults: clients without a certificate, or with one that no rule names.

use std::rc::Rc;

use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;

use crate::block::Exports;

/// A listen address and the access rules.
#[derive(Clone, Debug, Default)]
pub struct Door {
    /// Access rules; `None`: every client can open every export.
    pub rules: Option<Rc<Vec<Rule>>>,
    /// The listen address, as rules name it.
    pub place: String,
}

/// An access rule: exports for a group of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The clients.
    pub who: Who,
    /// Names of exports; a final `*` matches any continuation.
    pub exports: Vec<String>,
}

/// A group of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// Clients that connected to this listen address.
    Place(String),
    /// Clients with a verified certificate for this name (a DNS name or an address among its
    /// alternative names).
    Certificate(String),
}

/// True if certificates can have this name: rules with another one would match no client.
pub fn is_certificate_name(name: &str) -> bool {
    ServerName::try_from(name).is_ok()
}

/// A client, with the rules that match it. These are found once: each look at a certificate costs
/// time in proportion to the names in it.
pub(crate) struct Client<'a> {
    /// `None`: there are no rules.
    rules: Option<Vec<&'a Rule>>,
}

impl<'a> Client<'a> {
    /// A client that connected to `door`, with the certificate that it presented.
    pub(crate) fn new(door: &'a Door, certificate: Option<&CertificateDer<'_>>) -> Self {
        let certificate = certificate.and_then(|bytes| ParsedCertificate::try_from(bytes).ok());
        let matches = |rule: &&Rule| match &rule.who {
            Who::Place(place) => *place == door.place,
            Who::Certificate(name) => {
                certificate.as_ref().is_some_and(|certificate| is_for(certificate, name))
            }
        };
        let rules = door.rules.as_ref();
        Self { rules: rules.map(|rules| rules.iter().filter(matches).collect()) }
    }

    /// True if the client may use an export.
    pub(super) fn may_open(&self, export: &str) -> bool {
        let Some(rules) = &self.rules else { return true };
        let is_meant = |pattern: &String| match pattern.strip_suffix('*') {
            Some(begin) => export.starts_with(begin),
            None => pattern == export,
        };
        rules.iter().any(|rule| rule.exports.iter().any(is_meant))
    }
}

fn is_for(certificate: &ParsedCertificate<'_>, name: &str) -> bool {
    ServerName::try_from(name).is_ok_and(|name| verify_server_name(certificate, &name).is_ok())
}

/// The exports that a client may use.
pub(crate) struct Allowed<'a, E> {
    pub exports: &'a E,
    pub comer: &'a Client<'a>,
}

impl<E: Exports> Allowed<'_, E> {
    pub(super) fn find(&self, name: &str) -> Option<Rc<E::Export>> {
        self.exports.find(name).filter(|_| self.comer.may_open(name))
    }

    pub(super) fn list(&self) -> Vec<String> {
        self.exports.list().into_iter().filter(|name| self.comer.may_open(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_see_only_the_exports_of_their_rules() {
        let rule =
            |who: Who, exports: &[&str]| Rule { who, exports: exports.iter().map(|&e| e.into()).collect() };
        let rules = vec![
            rule(Who::Place("/run/a.sock".into()), &["tank/a", "tank/shared-*"]),
            rule(Who::Place("/run/b.sock".into()), &["tank/b"]),
            rule(Who::Certificate("vm.example".into()), &["tank/c"]),
        ];
        let door = Door { rules: Some(Rc::new(rules)), place: "/run/a.sock".to_owned() };
        let client = Client::new(&door, None);
        for (name, may) in [
            ("tank/a", true),
            ("tank/shared-1", true),
            ("tank/b", false),
            ("tank/c", false),
            ("tank/ab", false),
        ] {
            assert_eq!(client.may_open(name), may, "{name}");
        }
        let open = Door { rules: None, place: "anywhere".to_owned() };
        assert!(Client::new(&open, None).may_open("tank/b"));
    }
}
