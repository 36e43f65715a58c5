//! Programs of other projects keep their files, blocks and rows on volumes, while drives go
//! and come back, the daemon is killed, and other clients misbehave.
//!
//! Each test goes on for about six seconds, or `SOAK_SECONDS` of them, in rounds; `make soak` runs
//! them for long, one after the other. What a test needs and the machine has not (root, FUSE, loop
//! devices, programs) is named, and the test passed over. Whatever becomes of a test, it leaves
//! nothing mounted, attached or running, and no wait is without end.

#[path = "../../crates/stripewise/tests/it/kit/mod.rs"]
mod kit;
#[path = "../../crates/export/tests/it/kit/client.rs"]
#[allow(dead_code, reason = "the server's own tests say more")]
mod nbd_client;

mod changing;
mod crowd;
#[path = "../damage.rs"]
mod damage;
mod database;
mod drives;
mod file_systems;
mod fio;
mod http_rubbish;
mod span;
mod trees;
