//! Options of `alert test`, which `control/src/operations/alert_test.rs` executes.

use clap::Args;
use stripewise_control::request::TestAlerts;

/// Send a test alert through every configured channel
#[derive(Args)]
#[command(after_help = "Example: stripewise alert test")]
pub(crate) struct Options {}

impl Options {
    pub(crate) fn request(&self) -> TestAlerts {
        TestAlerts {}
    }
}
