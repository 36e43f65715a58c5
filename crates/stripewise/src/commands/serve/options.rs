//! The options of `serve` for NBD and alerts.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use stripewise_control::daemon::alerts::{AlertWays, MailAddress, WebAddress};
use stripewise_control::daemon::listeners::{NbdPlace, NbdSettings, VolumesFor};
use stripewise_control::size::ByteSize;
use stripewise_export::nbd::TlsPolicy;

use crate::commands::App;
use crate::failure::Result;

/// Options for NBD.
#[derive(Args)]
pub(super) struct NbdOptions {
    /// Export the volumes over NBD, as POOL/VOL: unix:PATH, tcp:PORT (of this machine) or
    /// tcp:ADDRESS:PORT. May be given several times
    #[arg(long = "nbd", value_name = "unix:PATH|tcp:ADDR")]
    places: Vec<NbdPlace>,
    /// Certificate (PEM), for encrypted connections
    #[arg(long = "nbd-tls-cert", value_name = "FILE", requires_all = ["places", "key"])]
    certificate: Option<PathBuf>,
    /// Key of the certificate (PEM)
    #[arg(long = "nbd-tls-key", value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// Accept only clients with a certificate signed by one of these (PEM)
    #[arg(long = "nbd-tls-clients", value_name = "FILE", requires = "certificate")]
    client_authority: Option<PathBuf>,
    /// Volumes available to some clients: unix:PATH=VOLUMES or tcp:ADDRESS:PORT=VOLUMES for clients
    /// of that listener, cert:NAME=VOLUMES for clients with a certificate for that DNS name
    /// (requires --nbd-tls-clients). VOLUMES are POOL/VOL, separated by commas; a trailing *
    /// matches any ending. Default: every volume is available to every client. May be given several
    /// times
    #[arg(long = "nbd-volumes", value_name = "WHO=VOLUMES", requires = "places")]
    volumes: Vec<VolumesFor>,
    /// Memory for all connections: requests over NBD, bodies and answers over HTTP. One client gets
    /// at most a quarter and 32MiB, and every listener has 32MiB reserved
    #[arg(long = "connection-memory", value_name = "SIZE", default_value = "256MiB")]
    pub memory: ByteSize,
    /// Encryption of NBD connections
    #[arg(long = "nbd-tls", value_enum, default_value = "required", requires = "certificate")]
    policy: PolicyChoice,
}

/// The encryption policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PolicyChoice {
    /// Clients must encrypt
    Required,
    /// Clients may encrypt
    Offered,
}

impl NbdOptions {
    /// The settings of the NBD listeners.
    pub(super) fn settings(&self) -> NbdSettings {
        NbdSettings {
            places: self.places.clone(),
            certificate: self.certificate.clone().zip(self.key.clone()),
            client_authority: self.client_authority.clone(),
            volumes: self.volumes.clone(),
            policy: match self.policy {
                PolicyChoice::Required => TlsPolicy::Required,
                PolicyChoice::Offered => TlsPolicy::Offered,
            },
        }
    }
}

/// Options for alerts; without any, none are sent.
#[derive(Args)]
pub(super) struct AlertOptions {
    /// Run this with `sh -c` on an alert: a pool's condition changes, a drive has errors, space
    /// runs low, a scrub finds errors or another process unmounts the --fuse folder. It gets
    /// STRIPEWISE_POOL, STRIPEWISE_KIND and STRIPEWISE_TEXT, and the alert as JSON on standard
    /// input
    #[arg(long = "alert-command", value_name = "COMMAND")]
    commands: Vec<String>,
    /// Send alerts by mail, through this machine's sendmail
    #[arg(long = "alert-mail", value_name = "ADDRESS")]
    mails: Vec<MailAddress>,
    /// Send alerts as JSON in a POST request. Every user of this machine can read the URL in the
    /// process list: if it is secret, use --alert-webhook-file
    #[arg(long = "alert-webhook", value_name = "URL")]
    webhooks: Vec<WebAddress>,
    /// As --alert-webhook, with the URL in this file, which only its owner may read (mode 0600)
    #[arg(long = "alert-webhook-file", value_name = "FILE")]
    webhook_files: Vec<PathBuf>,
}

impl AlertOptions {
    /// The channels for alerts.
    pub(super) fn ways(&self, app: &App) -> Result<AlertWays> {
        let mut webhooks = self.webhooks.clone();
        for file in &self.webhook_files {
            webhooks.push(WebAddress::from_file(&app.absolute(file))?);
        }
        Ok(AlertWays { commands: self.commands.clone(), mails: self.mails.clone(), webhooks })
    }
}
