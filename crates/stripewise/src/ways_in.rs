//! Where clients come in: what `serve` is told of NBD, and the servers made of it.
//!
//! Expected faults: addresses that make no sense, are in use or not allowed; certificates that
//! cannot be used.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use stripewise_export::budget::Budget;
use stripewise_export::nbd::{Notice, Rule, Server, ServerOptions, Tls, TlsPolicy, Who};
use stripewise_runtime::{ListenError, OWNER_ONLY};

use crate::commands::App;
use crate::control::listen_patiently;
use crate::failure::{Failure, Result};
use crate::refusals::Refusals;
use crate::served::ServedExports;
use crate::size::ByteSize;

/// What `serve` is told of NBD.
#[derive(Args)]
pub struct NbdOptions {
    /// Export the volumes over NBD, as POOL/VOL: unix:PATH, tcp:PORT (of this machine) or
    /// tcp:ADDRESS:PORT. May be given several times
    #[arg(long = "nbd", value_name = "unix:PATH|tcp:ADDR")]
    places: Vec<NbdPlace>,
    /// A certificate (PEM), so that clients can have their connections encrypted
    #[arg(long = "nbd-tls-cert", value_name = "FILE", requires_all = ["places", "key"])]
    certificate: Option<PathBuf>,
    /// Its key (PEM)
    #[arg(long = "nbd-tls-key", value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// Let in only clients with a certificate that one of these (PEM) has signed
    #[arg(long = "nbd-tls-clients", value_name = "FILE", requires = "certificate")]
    client_authority: Option<PathBuf>,
    /// Which clients find which volumes: unix:PATH=VOLUMES or tcp:ADDRESS:PORT=VOLUMES for those
    /// that come in there, cert:NAME=VOLUMES for those whose certificate is for that DNS name
    /// (needs --nbd-tls-clients). VOLUMES are POOL/VOL, separated by commas; one that ends with *
    /// means all that begin so. Without any, every client finds every volume. May be given several
    /// times
    #[arg(long = "nbd-volumes", value_name = "WHO=VOLUMES", requires = "places")]
    volumes: Vec<VolumesFor>,
    /// Memory for all connections: requests over NBD, bodies and bytes of volumes over HTTP
    #[arg(long = "connection-memory", value_name = "SIZE", default_value = "256MiB")]
    pub memory: ByteSize,
    /// Whether clients may also come in the clear
    #[arg(long = "nbd-tls", value_enum, default_value = "required", requires = "certificate")]
    policy: PolicyChoice,
}

/// As typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PolicyChoice {
    /// They must encrypt
    Required,
    /// They may
    Offered,
}

/// Some volumes for some clients, as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct VolumesFor {
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
enum NbdPlace {
    Unix(PathBuf),
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

/// The NBD server, listening at each place; nobody finds anything yet. `None` where there are no
/// places.
pub async fn open_nbd(
    options: &NbdOptions,
    budget: &Budget,
    app: &App,
) -> Result<Option<Server<ServedExports>>> {
    if options.places.is_empty() {
        return Ok(None);
    }
    let tls = match (&options.certificate, &options.key) {
        (Some(certificate), Some(key)) => {
            let authority = options.client_authority.as_ref().map(|path| app.absolute(path));
            let tls = Tls::load(&app.absolute(certificate), &app.absolute(key), authority.as_deref());
            Some(tls.map_err(|error| Failure::because("cannot encrypt NBD", &error))?)
        }
        _ => None,
    };
    let policy = match options.policy {
        PolicyChoice::Required => TlsPolicy::Required,
        PolicyChoice::Offered => TlsPolicy::Offered,
    };
    let needs_certificates = |rule: &VolumesFor| matches!(rule.who, WhoTyped::Certificate(_));
    if options.client_authority.is_none() && options.volumes.iter().any(needs_certificates) {
        return Err(Failure::usage("--nbd-volumes cert:… needs certificates of clients to go by")
            .hint("--nbd-tls-clients names the authority that signs them"));
    }
    let rules = (!options.volumes.is_empty()).then(|| rules(&options.volumes, app));
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
        tls_policy: policy,
        budget: budget.clone(),
        rules,
        notices,
        ..ServerOptions::default()
    };
    let executor = app.executor()?;
    let server = Server::new(&executor.context(), app.served.for_clients(app.home()?), server_options);
    for place in &options.places {
        let listener = match place {
            NbdPlace::Unix(path) => {
                let (network, path) = (executor.network(), app.absolute(path));
                listen_patiently(app, || network.listen_unix(&path, OWNER_ONLY)).await?
            }
            NbdPlace::Tcp(address) => {
                if is_open && !address.ip().is_loopback() {
                    app.printer.warning(format!(
                        "{address} is reached from other machines, and nothing is encrypted: whoever reaches it can read and \
                         write every volume; --nbd-tls-cert and --nbd-tls-clients change that"
                    ));
                }
                let network = executor.network();
                listen_patiently(app, || network.listen_tcp(*address)).await?
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
        app.printer.note(format!("NBD at {}", listener.place()));
        server.listen(listener);
    }
    app.served.ways_in().borrow_mut().nbd = Some(server.clone());
    Ok(Some(server))
}

/// Rules with the places as listeners are called.
fn rules(typed: &[VolumesFor], app: &App) -> Vec<Rule> {
    let who = |who: &WhoTyped| match who {
        WhoTyped::Certificate(name) => Who::Certificate(name.clone()),
        WhoTyped::Place(NbdPlace::Unix(path)) => Who::Place(app.absolute(path).display().to_string()),
        WhoTyped::Place(NbdPlace::Tcp(address)) => Who::Place(address.to_string()),
    };
    typed.iter().map(|rule| Rule { who: who(&rule.who), exports: rule.volumes.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_paths_or_addresses() {
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
