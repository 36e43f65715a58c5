//! `drive locate`: switches the light of a drive's slot.
//!
//! Expected faults: files and volumes, which have no light; slots without one.

use stripewise_export::bridge::off_thread;

use super::show::by_identity;
use crate::control::Control;
use crate::drives::hardware::locate::set_light;
use crate::drives::rights::permitted;
use crate::failure::{Failure, Result};
use crate::messages::request::LocateDrive;
use crate::messages::response::{Located, Response};

/// Switches the light.
pub async fn run(asked: &LocateDrive, control: &Control) -> Result<Response> {
    let candidate = permitted(control, &by_identity(control, &asked.drive).await).await?;
    let (device, on) = (candidate.path.clone(), asked.on);
    off_thread(move || set_light(&device, on))
        .await
        .map_err(|error| Failure::because("cannot start a thread", &error))??;
    Ok(Response::Located(Located { path: candidate.path, on }))
}
