//! The daemon's NBD server: listen addresses, access rules and TLS, made from the options.
//!
//! Expected faults: addresses that are invalid, in use or not permitted; unusable certificates.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use stripewise_export::budget::Budget;
use stripewise_export::nbd::{Notice, Rule, Server, ServerOptions, Tls, TlsPolicy, Who, is_certificate_name};
use stripewise_runtime::{ListenError, OWNER_ONLY};

use crate::control::Control;
use crate::daemon::refusals::Refusals;
use crate::daemon::socket::listen_patiently;
use crate::failure::{Failure, Result};
use crate::pools::served::ServedExports;

/// Options of the NBD server.
#[derive(Clone, Debug)]
pub struct NbdSettings {
    /// Listen addresses.
    pub places: Vec<NbdPlace>,
    /// Certificate and key (PEM) that enable TLS.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Authorities (PEM) one of which must have signed the client's certificate.
    pub client_authority: Option<PathBuf>,
    /// Volumes for each group of clients; if empty, every client can open every volume.
    pub volumes: Vec<VolumesFor>,
    /// Policy for unencrypted clients when there is a certificate.
    pub policy: TlsPolicy,
}

/// Volumes for a group of clients, as in `unix:/run/vm1.sock=tank/vm1,tank/shared-*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumesFor {
    who: WhoTyped,
    volumes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum WhoTyped {
    Place(NbdPlace),
    Certificate(String),
}

impl FromStr for VolumesFor {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (who, volumes) = text.rsplit_once('=').ok_or_else(|| {
            format!("`{text}` has no `=`; example: unix:/run/vm1.sock=tank/vm1,tank/shared-*")
        })?;
        let who = match who.strip_prefix("cert:") {
            Some("") => return Err("`cert:` needs a name; example: cert:vm1.example=tank/vm1".to_owned()),
            Some(name) if !is_certificate_name(name) => {
                return Err(format!(
                    "no certificate has the name `{name}`; example: cert:vm1.example=tank/vm1"
                ));
            }
            Some(name) => WhoTyped::Certificate(name.to_owned()),
            None => WhoTyped::Place(who.parse()?),
        };
        let volumes: Vec<String> = volumes.split(',').map(str::to_owned).collect();
        match volumes.iter().all(|volume| volume.ends_with('*') || volume.contains('/')) {
            true => Ok(Self { who, volumes }),
            false => {
                Err(format!("`{text}` names no volumes; they are given as POOL/VOL, POOL/* or POOL/PREFIX*"))
            }
        }
    }
}

/// A listen address of the NBD server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdPlace {
    /// Path of the unix socket to create.
    Unix(PathBuf),
    /// Address and port of this host.
    Tcp(SocketAddr),
}

impl FromStr for NbdPlace {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Self::Unix(path.into())),
            Some(("tcp", address)) => parse_address(address).map(Self::Tcp),
            _ => {
                Err(format!("`{text}` is not a listen address; use unix:PATH, tcp:PORT or tcp:ADDRESS:PORT"))
            }
        }
    }
}

/// Parses `8080`, `:8080`, `127.0.0.1:8080` or `[::1]:8080`; a port alone is on the loopback
/// address.
pub fn parse_address(text: &str) -> std::result::Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text);
    if let Ok(port) = port.parse::<u16>() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    text.parse()
        .map_err(|_| format!("`{text}` is not an address; examples: 10809, 127.0.0.1:10809, [::1]:10809"))
}

/// Hint for a listen address that is in use.
pub const TAKEN_HINT: &str =
    "`ss -lxtp` shows the process that listens there: stop it, or choose another address";

/// Starts the NBD server on each listen address; it has no exports yet. `None` without addresses.
pub async fn open_nbd(
    settings: &NbdSettings,
    budget: &Budget,
    control: &Control,
) -> Result<Option<Server<ServedExports>>> {
    if settings.places.is_empty() {
        return Ok(None);
    }
    let tls = match &settings.certificate {
        Some((certificate, key)) => {
            let authority = settings.client_authority.as_ref().map(|path| control.absolute(path));
            let tls = Tls::load(&control.absolute(certificate), &control.absolute(key), authority.as_deref());
            Some(tls.map_err(|error| Failure::because("cannot encrypt NBD", &error))?)
        }
        None => None,
    };
    let needs_certificates = |rule: &VolumesFor| matches!(rule.who, WhoTyped::Certificate(_));
    if settings.client_authority.is_none() && settings.volumes.iter().any(needs_certificates) {
        return Err(Failure::usage("--nbd-volumes cert:… requires client certificates")
            .hint("name the authority that signs them with --nbd-tls-clients"));
    }
    if let Some(place) = place_without_listener(settings, control) {
        return Err(Failure::usage(format!("--nbd-volumes {place}=…: --nbd has no such address"))
            .hint("write the address as in --nbd, or leave the rule out"));
    }
    let rules = (!settings.volumes.is_empty()).then(|| rules(&settings.volumes, control));
    let refusals = Refusals::default();
    let notices = Box::new(move |notice: &Notice| match notice {
        Notice::Connected { peer } => tracing::info!(target: "client", peer, "{notice}"),
        Notice::Begins { peer, export } => {
            tracing::info!(target: "client", peer, volume = export, "{notice}");
        }
        Notice::Ended { peer, export } => {
            tracing::info!(target: "client", peer, volume = export, "{notice}");
        }
        Notice::TooMany { peer } => refusals.tell("NBD", peer, "too many clients are connected"),
        Notice::GivenUp { peer, export: None, why } => refusals.tell("NBD", peer, &why.to_string()),
        Notice::GivenUp { peer, export, .. } => {
            tracing::warn!(target: "client", peer, volume = export, "{notice}");
        }
        Notice::NotAccepted { place, .. } => tracing::warn!(target: "client", place, "{notice}"),
    });
    let is_open = tls.is_none();
    let server_options = ServerOptions {
        tls,
        tls_policy: settings.policy,
        budget: budget.clone(),
        rules,
        notices,
        ..ServerOptions::default()
    };
    let executor = control.executor()?;
    let server =
        Server::new(&executor.context(), control.served.for_clients(control.registry()?), server_options);
    server.use_shards();
    for place in &settings.places {
        let listener = match place {
            NbdPlace::Unix(path) => {
                let (network, path) = (executor.network(), control.absolute(path));
                listen_patiently(control, || network.listen_unix(&path, OWNER_ONLY)).await?
            }
            NbdPlace::Tcp(address) => {
                if is_open && !address.ip().is_loopback() {
                    control.warning(format!(
                        "{address} is reachable from other machines without encryption: any client that connects can read \
                         and write every volume; to prevent that, use --nbd-tls-cert and --nbd-tls-clients"
                    ));
                }
                let network = executor.network();
                listen_patiently(control, || network.listen_tcp(*address)).await?
            }
        };
        let listener = listener.map_err(|error| {
            let is_taken = matches!(error, ListenError::InUse { .. });
            let failure = Failure::because("cannot export over NBD", &error);
            failure.hint(if is_taken {
                TAKEN_HINT
            } else {
                "use --nbd unix:PATH, in a folder where a socket can be created, or --nbd tcp:PORT"
            })
        })?;
        control.note(format!("NBD at {}", listener.place()));
        listener.address().into_iter().for_each(|address| control.own().note_listener(address));
        control.served.listeners().borrow_mut().nbd_places.push(listener.place().to_string());
        server.listen(listener);
    }
    control.served.listeners().borrow_mut().nbd = Some(server.clone());
    Ok(Some(server))
}

/// The address of a rule at which nothing listens: the rule is meant for clients that it does not
/// match.
fn place_without_listener(settings: &NbdSettings, control: &Control) -> Option<String> {
    let full = |place: &NbdPlace| match place {
        NbdPlace::Unix(path) => format!("unix:{}", control.absolute(path).display()),
        NbdPlace::Tcp(address) => format!("tcp:{address}"),
    };
    let open: Vec<String> = settings.places.iter().map(full).collect();
    let mut of_rules = settings.volumes.iter().filter_map(|rule| match &rule.who {
        WhoTyped::Place(place) => Some(full(place)),
        WhoTyped::Certificate(_) => None,
    });
    of_rules.find(|place| !open.contains(place))
}

/// Access rules, with the addresses in the form that listeners report.
fn rules(typed: &[VolumesFor], control: &Control) -> Vec<Rule> {
    let who = |who: &WhoTyped| match who {
        WhoTyped::Certificate(name) => Who::Certificate(name.clone()),
        WhoTyped::Place(NbdPlace::Unix(path)) => Who::Place(control.absolute(path).display().to_string()),
        WhoTyped::Place(NbdPlace::Tcp(address)) => Who::Place(address.to_string()),
    };
    typed.iter().map(|rule| Rule { who: who(&rule.who), exports: rule.volumes.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_for_names_no_certificate_has_are_refused() {
        for name in ["vm1.example", "VM1.example", "vm1", "10.0.0.1", "_x.vm1.example"] {
            let rule = format!("cert:{name}=tank/vm1");
            rule.parse::<VolumesFor>().unwrap_or_else(|why| panic!("{why}"));
        }
        for name in ["*.example", "vm1 example", " vm1", "vm1,vm2", "ü.example", "a..b", "-", "vm1/x"] {
            let refused = format!("cert:{name}=tank/vm1").parse::<VolumesFor>().expect_err(name);
            assert!(refused.contains(name), "{refused}");
        }
    }

    #[test]
    fn nbd_listeners_are_socket_files_or_addresses() {
        let tcp = |text: &str| NbdPlace::Tcp(text.parse().expect("an address"));
        assert_eq!("unix:/run/nbd.sock".parse(), Ok(NbdPlace::Unix("/run/nbd.sock".into())));
        assert_eq!("tcp:10809".parse(), Ok(tcp("127.0.0.1:10809")));
        assert_eq!("tcp::10809".parse(), Ok(tcp("127.0.0.1:10809")));
        assert_eq!("tcp:[::]:10809".parse(), Ok(tcp("[::]:10809")));
        for wrong in ["", "unix:", "tcp:", "tcp:x", "/run/nbd.sock", "tcp:1.2.3.4", "tcp:99999", "udp:1"] {
            assert!(wrong.parse::<NbdPlace>().is_err(), "{wrong}");
        }
    }
}
