//! What `serve` is told of NBD and of alerts, as options.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use stripewise_control::daemon::alerts::{AlertWays, MailAddress, WebAddress};
use stripewise_control::daemon::listeners::{NbdPlace, NbdSettings, VolumesFor};
use stripewise_control::size::ByteSize;
use stripewise_export::nbd::TlsPolicy;

use crate::commands::App;
use crate::failure::Result;

/// What `serve` is told of NBD.
#[derive(Args)]
pub(super) struct NbdOptions {
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
    /// Memory for all connections: requests over NBD, bodies and answers over HTTP. One client has
    /// a quarter and 32MiB at most, and every listener 32MiB for itself
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

impl NbdOptions {
    /// What is meant by them.
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

/// How alerts are sent; nothing is where no way is given.
#[derive(Args)]
pub(super) struct AlertOptions {
    /// Run this with `sh -c` when a pool's condition changes, a drive errs, space runs out, a scrub
    /// finds something or another process unmounts the folder of --fuse. It gets STRIPEWISE_POOL,
    /// STRIPEWISE_KIND and STRIPEWISE_TEXT, and all of it as JSON on standard input
    #[arg(long = "alert-command", value_name = "COMMAND")]
    commands: Vec<String>,
    /// Send it by mail, through this machine's sendmail
    #[arg(long = "alert-mail", value_name = "ADDRESS")]
    mails: Vec<MailAddress>,
    /// Send it as JSON in a POST request. Every user of this machine can read the address in the
    /// list of processes: where it is a secret, use --alert-webhook-file
    #[arg(long = "alert-webhook", value_name = "URL")]
    webhooks: Vec<WebAddress>,
    /// As --alert-webhook, with the address in this file, which only its owner may read (mode 0600)
    #[arg(long = "alert-webhook-file", value_name = "FILE")]
    webhook_files: Vec<PathBuf>,
}

impl AlertOptions {
    /// What is meant by them.
    pub(super) fn ways(&self, app: &App) -> Result<AlertWays> {
        let mut webhooks = self.webhooks.clone();
        for file in &self.webhook_files {
            webhooks.push(WebAddress::from_file(&app.absolute(file))?);
        }
        Ok(AlertWays { commands: self.commands.clone(), mails: self.mails.clone(), webhooks })
    }
}
