//! Stacked pools: registered pools whose drives are volumes of other pools.
//!
//! Expected faults: a volume that would become a drive of a pool below it, a volume in use as a
//! drive.

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

/// The volumes that are drives of registered pools; `None` if the registry is unreadable.
pub(crate) fn used_volumes(registry: &Registry) -> Option<Vec<VolumeName>> {
    let pools = registry.pools().ok()?;
    let used =
        pools.iter().flat_map(|outer| &outer.drives).filter_map(|drive| match noted_place(&drive.path) {
            Place::Volume(name) => Some(name),
            Place::Path(_) | Place::Network(_) => None,
        });
    Some(used.collect())
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
