//! What is asked of pools and what is answered, as data: made and read by the faces, sent over the
//! daemon's socket; and which role may ask.

pub mod report;
pub mod request;
pub mod response;
pub mod roles;
