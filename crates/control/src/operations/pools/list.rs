//! `pool list`: the pools that this user works with, without opening them.

use crate::control::Control;
use crate::failure::Result;
use crate::messages::request::ListPools;
use crate::messages::response::{KnownPools, Response};

/// Carries it out.
pub fn run(_asked: &ListPools, control: &Control) -> Result<Response> {
    Ok(Response::KnownPools(KnownPools { pools: control.registry()?.pools()? }))
}
