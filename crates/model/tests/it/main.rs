//! Tests of the models.

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
