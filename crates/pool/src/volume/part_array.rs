//! The array of one part of a volume, whatever its kind.

use stripewise_array::ArrayHandle;

use crate::volume::log::LogArray;

/// An array in place, or a log. Clones are the same array.
#[derive(Clone)]
pub(crate) enum PartArray {
    /// Blocks are written where they are.
    InPlace(ArrayHandle),
    /// Nothing is overwritten.
    Log(LogArray),
}
