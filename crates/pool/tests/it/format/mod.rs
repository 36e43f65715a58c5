//! Data on drives: creating and opening pools, old images, decoders, tuning.

mod decoders;
mod images;
mod pools;
mod tuning;
