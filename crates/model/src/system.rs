//! Systems: drives behind a controller or software, and what each part does to a request.
//!
//! A [`Catalogue`] holds components (drives, controllers, links) as named numbers with their
//! origin, and systems made of them. [`Catalogue::system`] resolves a name, [`Catalogue::build`] a
//! configuration that has none.

mod catalogue;
mod fitted;
mod parameter;

pub use catalogue::{
    Catalogue, CatalogueError, Component, ComponentKind, Configuration, Over, System, SystemEntry,
};
pub(crate) use catalogue::{hard_disk, solid_state};
pub use parameter::{How, Known, Parameter};
