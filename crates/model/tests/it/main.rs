//! Tests of the models.

#[macro_use]
#[path = "../../../../tests/cases.rs"]
mod cases;

mod advise;
mod catalogue;
mod commands;
mod hdd;
mod kit;
mod measured;
mod modelled;
mod reliability;
mod replay;
mod ssd;
mod systems;
