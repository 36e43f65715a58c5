//! The environment of operations on pools, and the pools that this process serves.

use std::ops::Deref;
use std::path::PathBuf;
use std::rc::Rc;

use crate::daemon::caller::Caller;
use crate::daemon::history::History;
use crate::daemon::news::News;
use crate::environment::{Environment, Notices};
use crate::messages::roles::Role;
use crate::pools::served::Served;

/// The environment of operations on pools. Copies belong to the same process.
#[derive(Clone)]
pub struct Control {
    /// The pools that this process serves.
    pub served: Served,
    /// Subscriptions to their events.
    pub news: Rc<News>,
    /// Their load over the last hour.
    pub history: Rc<History>,
    environment: Environment,
}

impl Control {
    /// The environment of this process's own work, in its current folder.
    pub fn of_this_process(notices: Rc<dyn Notices>) -> Self {
        let environment = Environment::of_this_process(notices);
        Self { served: Served::default(), news: Rc::default(), history: Rc::default(), environment }
    }

    /// The environment of a command from another process with this role, given in `folder`.
    pub fn for_caller(
        &self,
        notices: Rc<dyn Notices>,
        caller: Rc<Caller>,
        folder: PathBuf,
        role: Role,
    ) -> Self {
        Self { environment: self.environment.for_caller(notices, caller, folder, role), ..self.clone() }
    }
}

impl Deref for Control {
    type Target = Environment;

    fn deref(&self) -> &Environment {
        &self.environment
    }
}
