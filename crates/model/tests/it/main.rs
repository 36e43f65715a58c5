//! Tests of the models.

mod catalogue;
mod hdd;
mod kit;
mod replay;
mod systems;
