//! Tests of the models.

mod hdd;
mod kit;
