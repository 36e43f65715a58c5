//! `drive locate`: switches the light of a drive's slot.
//!
//! Expected faults: files and volumes, which have no light; slots without one.

use stripewise_export::bridge::off_thread;

use super::show::by_identity;
use crate::control::Control;
use crate::drives::candidates::Candidate;
use crate::drives::hardware::locate::set_light;
use crate::drives::rights::refuse_foreign_path;
use crate::failure::{Failure, Result};
use crate::messages::request::LocateDrive;
use crate::messages::response::{Located, Response};

/// Switches the light.
pub async fn run(asked: &LocateDrive, control: &Control) -> Result<Response> {
    let path = by_identity(control, &asked.drive);
    let candidate = match path.to_str() {
        Some(text) => Candidate::named(control, text)?,
        None => Candidate::at(&control.absolute(&path))?,
    };
    refuse_foreign_path(control, &candidate).await?;
    let (device, on) = (candidate.path.clone(), asked.on);
    off_thread(move || set_light(&device, on))
        .await
        .map_err(|error| Failure::because("cannot start a thread", &error))??;
    Ok(Response::Located(Located { path: candidate.path, on }))
}
