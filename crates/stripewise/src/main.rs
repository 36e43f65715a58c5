//! The command line of Stripewise: one file per command, one printer, one error style.

mod candidates;
mod failure;
mod home;
mod names;
mod printer;
mod progress;
mod signatures;
mod size;

fn main() {}
