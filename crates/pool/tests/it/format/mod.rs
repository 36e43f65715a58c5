//! Data on drives: creating and opening pools, old images and streams, decoders, tuning.

mod decoders;
mod images;
mod pools;
mod streams;
mod tuning;
