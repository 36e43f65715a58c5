//! Tests of the models.

mod catalogue;
mod hdd;
mod kit;
mod modelled;
mod replay;
mod ssd;
mod systems;
