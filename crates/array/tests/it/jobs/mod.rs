//! Rows that move, and scrubs.

mod rows;
mod scrub;
