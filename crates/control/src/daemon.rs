//! What a process does that keeps pools open for others: it opens them and takes up new ones
//! (`serving`), lets clients in (`listeners`, `mounting`), takes commands (`socket`, `caller`,
//! `turns`), and tells what happens (`alerts`, `news`, `refusals`).

pub mod alerts;
pub mod caller;
pub mod listeners;
pub mod mounting;
pub mod news;
pub mod refusals;
pub mod serving;
pub mod socket;
pub mod turns;
