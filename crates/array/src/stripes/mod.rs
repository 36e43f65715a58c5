//! Stripes as what work holds: who has which one, who waits, and what may be waited for.

pub mod lock_order;
pub(crate) mod stripe_table;
