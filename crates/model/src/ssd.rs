//! Solid-state drives: channels, dies, page mapping, garbage collection.
