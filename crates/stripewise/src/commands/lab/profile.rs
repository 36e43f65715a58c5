//! The method that a name or a file stands for.

use std::path::Path;

use stripewise_lab::method::{Profile, built_in};

use crate::commands::App;
use crate::failure::{Failure, Result, system_text};

/// Finds a built-in method, or reads a method from a file.
pub(crate) fn profile(app: &App, name: &str) -> Result<Profile> {
    let path = app.absolute(Path::new(name));
    if name.ends_with(".toml") || path.is_file() {
        let text = std::fs::read_to_string(&path).map_err(|error| {
            Failure::new(format!("cannot read {}: {}", path.display(), system_text(&error)))
        })?;
        return Profile::parse(&text)
            .map_err(|error| Failure::because(format!("cannot use {}", path.display()), &error));
    }
    built_in(name)
        .map_err(|error| Failure::usage(error.to_string()).hint("`stripewise lab profiles` lists them"))
}
