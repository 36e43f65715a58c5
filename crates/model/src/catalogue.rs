//! Drives and systems by name: parameters with unit, source, and how each was found.
