//! Stacked pools: registered pools whose drives are volumes of other pools.
//!
//! Expected faults: a volume that would become a drive of a pool below it, a volume in use as a
//! drive.

use std::path::Path;

use crate::drives::candidates::{Place, noted_place};
use crate::failure::{Failure, Result};
use crate::notation::names::VolumeName;
use crate::registry::Registry;

/// Refuses a volume as a drive of `pool` if the volume's pool is stacked on `pool`, directly or
/// through others.
pub(crate) fn refuse_circle(registry: &Registry, pool: &str, volume: &VolumeName) -> Result<()> {
    let pools = registry.pools()?;
    let (mut below, mut seen) = (vec![volume.pool.clone()], Vec::new());
    while let Some(name) = below.pop() {
        if name == pool {
            return Err(Failure::new(format!(
                "volume `{volume}` cannot be a drive of pool `{pool}`: the volume is stored on that pool"
            ))
            .hint("a pool's drives are files, devices, or volumes of pools that are not stacked on it"));
        }
        if seen.contains(&name) {
            continue;
        }
        let drives = pools.iter().filter(|pool| pool.name == name).flat_map(|pool| &pool.drives);
        below.extend(drives.filter_map(|drive| match noted_place(&drive.path) {
            Place::Volume(volume) => Some(volume.pool),
            Place::Path(_) | Place::Network(_) => None,
        }));
        seen.push(name);
    }
    Ok(())
}

/// True if the volume is a drive of a registered pool; `None` if the registry is unreadable.
pub(crate) fn is_used(registry: &Registry, pool: &str, volume: &str) -> Option<bool> {
    let pools = registry.pools().ok()?;
    let is_it = |path: &Path| match noted_place(path) {
        Place::Volume(name) => name.pool == pool && name.volume == volume,
        Place::Path(_) | Place::Network(_) => false,
    };
    Some(pools.iter().flat_map(|outer| &outer.drives).any(|drive| is_it(&drive.path)))
}

/// Refuses an action on a volume, or (`None`) on a whole pool, that another registered pool uses as
/// a drive.
pub fn refuse_if_used(registry: &Registry, what: &str, pool: &str, volume: Option<&str>) -> Result<()> {
    for outer in registry.pools()? {
        for drive in &outer.drives {
            let Place::Volume(name) = noted_place(&drive.path) else { continue };
            if name.pool == pool && volume.is_none_or(|volume| volume == name.volume) {
                return Err(Failure::new(format!(
                    "cannot {what}: volume `{name}` is a drive of pool `{}`",
                    outer.name
                ))
                .hint(format!(
                    "remove the drive with `stripewise pool retire {0} {name}` or `stripewise pool remove {0} {name}`, destroy \
                     that pool with `stripewise pool destroy {0} --yes`, or export it with `stripewise pool export {0}`",
                    outer.name
                )));
            }
        }
    }
    Ok(())
}
