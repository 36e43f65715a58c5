//! Drives that join a pool, leave it, fail, come back, or are replaced.

pub(crate) mod drives;
pub(crate) mod host;
pub(crate) mod inspect;
pub(crate) mod leaving;
pub(crate) mod new_identity;
pub(crate) mod replacement;
pub(crate) mod returning;
