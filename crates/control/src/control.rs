//! What operations on pools get: their environment, and the pools that this process serves.

use std::ops::Deref;
use std::path::PathBuf;
use std::rc::Rc;

use crate::daemon::caller::Caller;
use crate::daemon::news::News;
use crate::environment::{Environment, Notices};
use crate::messages::roles::Role;
use crate::pools::served::Served;

/// What operations on pools get. Copies are of the same process.
#[derive(Clone)]
pub struct Control {
    /// Pools that this process has open anyway.
    pub served: Served,
    /// Those who follow what happens to these.
    pub news: Rc<News>,
    environment: Environment,
}

impl Control {
    /// For what this process does of its own, in its current folder.
    pub fn of_this_process(notices: Rc<dyn Notices>) -> Self {
        let environment = Environment::of_this_process(notices);
        Self { served: Served::default(), news: Rc::default(), environment }
    }

    /// For a command of another process with this role, given in `folder`.
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
