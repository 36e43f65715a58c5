//! Rows that move, scrubs and checks.

mod check;
mod rows;
mod scrub;
