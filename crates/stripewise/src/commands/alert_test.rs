//! `alert test`: what can be typed; `control/src/operations/alert_test.rs` carries it out.

use clap::Args;
use stripewise_control::request::TestAlerts;

/// Send a test alert through every configured channel
#[derive(Args)]
pub(crate) struct Options {}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> TestAlerts {
        TestAlerts {}
    }
}
