//! The daemon: it opens pools and adopts new ones (`serving`), serves volumes over NBD, FUSE
//! and vhost-user (`listeners`, `mounting`, `vhost`), executes commands (`socket`, `caller`,
//! `turns`), and reports events (`alerts`, `news`, `history`, `refusals`).

pub mod alerts;
pub mod caller;
pub mod hardware;
pub mod history;
pub mod listeners;
pub mod mounting;
pub mod news;
pub mod refusals;
pub mod serving;
pub mod socket;
pub mod turns;
pub mod vhost;
