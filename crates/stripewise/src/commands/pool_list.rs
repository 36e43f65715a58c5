//! `pool list`: the pools that this user works with, without opening them.

use clap::Args;
use stripewise_control::request::ListPools;
use stripewise_control::response::{KnownPools, Response};

use crate::commands::App;
use crate::failure::Result;

/// List the known pools
#[derive(Args)]
pub(crate) struct Options {}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> ListPools {
        ListPools {}
    }
}

/// Runs it.
pub(crate) fn run(_asked: &ListPools, app: &App) -> Result<Response> {
    Ok(Response::KnownPools(KnownPools { pools: app.home()?.pools()? }))
}
