//! Where clients come in over NBD: the places, who finds what there, and the server made of it.
//!
//! Expected faults: addresses that make no sense, are in use or not allowed; certificates that
//! cannot be used.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use stripewise_export::budget::Budget;
use stripewise_export::nbd::{Notice, Rule, Server, ServerOptions, Tls, TlsPolicy, Who};
use stripewise_runtime::{ListenError, OWNER_ONLY};

use crate::control::Control;
use crate::daemon::refusals::Refusals;
use crate::daemon::socket::listen_patiently;
use crate::failure::{Failure, Result};
use crate::pools::served::ServedExports;

/// What is wanted of NBD.
#[derive(Clone, Debug)]
pub struct NbdSettings {
    /// Where to listen.
    pub places: Vec<NbdPlace>,
    /// A certificate and its key (PEM): clients can have their connections encrypted.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Only clients with a certificate that one of these (PEM) has signed are let in.
    pub client_authority: Option<PathBuf>,
    /// Which clients find which volumes; without any, every client finds every volume.
    pub volumes: Vec<VolumesFor>,
    /// Whether clients may come in the clear where there is a certificate.
    pub policy: TlsPolicy,
}

/// Some volumes for some clients, as in `unix:/run/vm1.sock=tank/vm1,tank/shared-*`.
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
        let (who, volumes) = text
            .rsplit_once('=')
            .ok_or_else(|| format!("`{text}` lacks `=`; as in unix:/run/vm1.sock=tank/vm1,tank/shared-*"))?;
        let who = match who.strip_prefix("cert:") {
            Some("") => return Err("`cert:` lacks a name; as in cert:vm1.example=tank/vm1".to_owned()),
            Some(name) => WhoTyped::Certificate(name.to_owned()),
            None => WhoTyped::Place(who.parse()?),
        };
        let volumes: Vec<String> = volumes.split(',').map(str::to_owned).collect();
        match volumes.iter().all(|volume| volume.ends_with('*') || volume.contains('/')) {
            true => Ok(Self { who, volumes }),
            false => Err(format!("`{text}` names no volumes; as in POOL/VOL, POOL/* or POOL/begin*")),
        }
    }
}

/// Where to listen for NBD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdPlace {
    /// A unix socket that is made there.
    Unix(PathBuf),
    /// An address and port of this machine.
    Tcp(SocketAddr),
}

impl FromStr for NbdPlace {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Self::Unix(path.into())),
            Some(("tcp", address)) => parse_address(address).map(Self::Tcp),
            _ => {
                Err(format!("`{text}` is no place to listen; as in unix:PATH, tcp:10809 or tcp:ADDRESS:PORT"))
            }
        }
    }
}

/// `8080`, `:8080`, `127.0.0.1:8080`, `[::1]:8080`; without an address this machine alone is meant.
pub fn parse_address(text: &str) -> std::result::Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text);
    if let Ok(port) = port.parse::<u16>() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    text.parse().map_err(|_| format!("`{text}` is no address; as in 10809, 127.0.0.1:10809 or [::1]:10809"))
}

/// For who wants to listen where somebody else does.
pub const TAKEN_HINT: &str = "`ss -lxtp` shows who listens there: end that, or choose another place";

/// The NBD server, listening at each place; no client finds anything yet. `None` where there are no
/// places.
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
        return Err(Failure::usage("--nbd-volumes cert:… needs certificates of clients to go by")
            .hint("--nbd-tls-clients names the authority that signs them"));
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
    for place in &settings.places {
        let listener = match place {
            NbdPlace::Unix(path) => {
                let (network, path) = (executor.network(), control.absolute(path));
                listen_patiently(control, || network.listen_unix(&path, OWNER_ONLY)).await?
            }
            NbdPlace::Tcp(address) => {
                if is_open && !address.ip().is_loopback() {
                    control.warning(format!(
                        "{address} is reached from other machines, and nothing is encrypted: whoever reaches it can read and \
                         write every volume; --nbd-tls-cert and --nbd-tls-clients change that"
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
                "--nbd takes unix:PATH, where a socket can be made, or tcp:PORT"
            })
        })?;
        control.note(format!("NBD at {}", listener.place()));
        server.listen(listener);
    }
    control.served.listeners().borrow_mut().nbd = Some(server.clone());
    Ok(Some(server))
}

/// Rules with the places as listeners are called.
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
