//! The parts that all readers share: text without the noise around records, numbers of any locale,
//! and figures with unique names.

pub(super) mod figures;
pub(super) mod numbers;
pub(super) mod text;

pub(super) use figures::Figures;
pub(super) use numbers::{Mark, Numbers, is_absent};
