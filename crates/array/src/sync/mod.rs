//! Ways for tasks of one executor to wait for each other.

pub(crate) mod one_at_a_time;
pub(crate) mod read_epochs;
