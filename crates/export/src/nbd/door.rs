//! Access rules: the exports visible to a client, by the listen address of its connection and by
//! its certificate. Other exports do not exist for it, by name or in lists.
//!
//! Expected faults: clients without a certificate, or with one that no rule names.

use std::rc::Rc;

use rustls::pki_types::{CertificateDer, ServerName};

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
    /// Clients with a verified certificate for this name (a DNS name among its alternative names).
    Certificate(String),
}

/// Known properties of a client.
#[derive(Clone)]
pub(crate) struct Client<'a> {
    pub door: &'a Door,
    pub certificate: Option<CertificateDer<'static>>,
}

impl Client<'_> {
    fn is(&self, who: &Who) -> bool {
        match who {
            Who::Place(place) => *place == self.door.place,
            Who::Certificate(name) => {
                self.certificate.as_ref().is_some_and(|certificate| is_for(certificate, name))
            }
        }
    }

    /// True if the client may use an export.
    pub(super) fn may_open(&self, export: &str) -> bool {
        let Some(rules) = &self.door.rules else { return true };
        let is_meant = |pattern: &String| match pattern.strip_suffix('*') {
            Some(begin) => export.starts_with(begin),
            None => pattern == export,
        };
        rules.iter().any(|rule| self.is(&rule.who) && rule.exports.iter().any(is_meant))
    }
}

fn is_for(certificate: &CertificateDer<'_>, name: &str) -> bool {
    let Ok(name) = ServerName::try_from(name) else { return false };
    let parsed = rustls::server::ParsedCertificate::try_from(certificate);
    parsed.is_ok_and(|parsed| rustls::client::verify_server_name(&parsed, &name).is_ok())
}

/// The exports that a client may use.
pub(crate) struct Allowed<'a, E> {
    pub exports: &'a E,
    pub comer: Client<'a>,
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
        let client = Client { door: &door, certificate: None };
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
        assert!(Client { door: &open, certificate: None }.may_open("tank/b"));
    }
}
