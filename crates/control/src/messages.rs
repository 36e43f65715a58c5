//! Requests, responses and reports as plain data, shared by the command line, HTTP and the daemon's
//! control socket; and the roles that may send each request.

pub mod report;
pub mod request;
pub mod response;
pub mod roles;
