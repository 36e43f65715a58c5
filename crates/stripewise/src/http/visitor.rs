//! The sender of a request, after authentication.

use stripewise_control::daemon::caller::Party;
use stripewise_control::roles::{Class, Role};
use stripewise_export::ClientId;

/// The sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Visitor {
    /// Name for the log: the user or the token, and the address.
    pub name: String,
    /// Its rights.
    pub role: Role,
    /// The token or user, whatever address it comes from.
    pub client: ClientId,
    /// Callers with which it shares a reserve.
    pub class: Class,
}

impl Visitor {
    /// Itself, as far as limits are concerned.
    pub(super) fn party(&self) -> Party {
        Party { client: self.client.clone(), class: self.class }
    }
}
