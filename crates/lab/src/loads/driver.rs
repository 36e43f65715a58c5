//! Drivers other than the native one: external programs that run the same load descriptions.

pub mod fio;
