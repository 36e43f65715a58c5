//! Tests of arrays on threads of their own, as one program.

#[path = "../it/kit/linear.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod linear;
mod shard;
mod shards;
