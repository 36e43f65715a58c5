//! Which exports a client finds: by the place where it came in, and by its certificate. Others are
//! not there for it, by name or in lists.
//!
//! Expected faults: clients without a certificate, or with one that names nothing of what is
//! allowed.

use std::rc::Rc;

use rustls::pki_types::{CertificateDer, ServerName};

use crate::block::Exports;

/// A place where clients come in, and who finds what there.
#[derive(Clone, Debug, Default)]
pub struct Door {
    /// Nothing: every client finds every export.
    pub rules: Option<Rc<Vec<Rule>>>,
    /// Its name, as rules have it.
    pub place: String,
}

/// Some exports for some clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The clients.
    pub who: Who,
    /// Names of exports; one that ends with `*` means all that begin so.
    pub exports: Vec<String>,
}

/// Some clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// Those that came in at this place.
    Place(String),
    /// Those whose certificate, which the server has checked, is for this name (a DNS name among
    /// its alternative names).
    Certificate(String),
}

/// A client, as far as it is known.
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

    /// Whether it may use an export.
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
