//! Where clients come in: what `serve` is told of NBD, and the servers made of it.
//!
//! Expected faults: addresses that make no sense, are in use or not allowed; certificates that cannot be used.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use stripewise_export::nbd::{Notice, Server, ServerOptions, Tls, TlsPolicy};
use stripewise_runtime::{ListenError, OWNER_ONLY};

use crate::commands::App;
use crate::control::listen_patiently;
use crate::failure::{Failure, Result};
use crate::served::ServedExports;

/// What `serve` is told of NBD.
#[derive(Args)]
pub struct NbdOptions {
    /// Export the volumes over NBD, as POOL/VOL: unix:PATH, tcp:PORT (of this machine) or tcp:ADDRESS:PORT. May be given
    /// several times
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

/// The NBD server, listening at each place; nobody finds anything yet. `None` where there are no places.
pub async fn open_nbd(options: &NbdOptions, app: &App) -> Result<Option<Server<ServedExports>>> {
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
    let notices = Box::new(|notice: &Notice| match notice {
        Notice::Connected { peer } => tracing::info!(target: "client", peer, "{notice}"),
        Notice::Begins { peer, export } => {
            tracing::info!(target: "client", peer, volume = export, "{notice}");
        }
        Notice::Ended { peer, export } => {
            tracing::info!(target: "client", peer, volume = export, "{notice}");
        }
        Notice::TooMany { peer } => tracing::warn!(target: "client", peer, "{notice}"),
        Notice::GivenUp { peer, export, .. } => {
            tracing::warn!(target: "client", peer, volume = export, "{notice}");
        }
        Notice::NotAccepted { place, .. } => tracing::warn!(target: "client", place, "{notice}"),
    });
    let is_open = tls.is_none();
    let server_options = ServerOptions { tls, tls_policy: policy, notices, ..ServerOptions::default() };
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
