//! The two executors that poll the engine, and drives over files and block devices.
//!
//! [`VirtualExecutor`] runs tasks in virtual time, deterministically.

mod tasks;
mod timers;
mod virtual_time;
mod waker;

pub use virtual_time::VirtualExecutor;
