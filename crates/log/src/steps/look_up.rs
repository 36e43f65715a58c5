//! Look-ups of logical blocks in the sealed log.

use std::rc::Rc;

use smallvec::SmallVec;
use stripewise_array::Class;

use crate::core::Core;
use crate::error::LogError;
use crate::map::entry::{Entry, Newest};
use crate::map::lineage::View;
use crate::map::page::decode_page;
use crate::map::run::Run;

/// Versions of a logical block, the newest first.
pub(crate) type Versions = SmallVec<[Entry; 2]>;

/// The newest version of a logical block that a viewer sees. The caller holds a read ticket if it
/// reads the place that it gets.
pub(crate) async fn look_up(core: &Core, lba: u64, view: &View) -> Result<Option<Entry>, LogError> {
    let (newest, runs) = {
        let map = &core.state.borrow().map;
        (map.in_memory(lba, view), map.runs.clone())
    };
    look_up_in_runs(core, &runs, lba, view, newest).await
}

/// Goes on with a look-up in runs, the newest first.
pub(crate) async fn look_up_in_runs(
    core: &Core,
    runs: &[Rc<Run>],
    lba: u64,
    view: &View,
    mut newest: Newest,
) -> Result<Option<Entry>, LogError> {
    for run in runs {
        if newest.is_final {
            break;
        }
        newest.offer(versions_in_run(core, run, lba, Some(view)).await?.first().copied());
    }
    Ok(newest.found)
}

/// All versions of a logical block in runs.
pub(crate) async fn versions_in_runs(core: &Core, runs: &[Rc<Run>], lba: u64) -> Result<Versions, LogError> {
    let mut versions = Versions::new();
    for run in runs {
        versions.extend(versions_in_run(core, run, lba, None).await?);
    }
    Ok(versions)
}

/// Versions of a logical block in a run: all, or the newest that a viewer sees.
async fn versions_in_run(
    core: &Core,
    run: &Run,
    lba: u64,
    viewer: Option<&View>,
) -> Result<Versions, LogError> {
    let mut versions = Versions::new();
    let Some(mut page) = run.page_of(lba) else { return Ok(versions) };
    loop {
        let entries = page_of_run(core, run, page).await?;
        let after = entries.partition_point(|entry| entry.lba <= lba);
        let Some(start) = after.checked_sub(1).map(|last| entries[last].lba) else { return Ok(versions) };
        let first = entries.partition_point(|entry| entry.lba < start);
        let of_block = entries[first..after].iter().filter(|entry| lba < entry.end());
        versions.extend(of_block.copied().filter(|entry| viewer.is_none_or(|view| view.sees(entry.birth))));
        let is_found = viewer.is_some() && !versions.is_empty();
        page += 1;
        if is_found || after < entries.len() || !run.goes_on(page, start) {
            return Ok(versions);
        }
    }
}

/// A page of a run, from memory if it is there.
async fn page_of_run(core: &Core, run: &Run, page: u64) -> Result<Rc<Vec<Entry>>, LogError> {
    let key = (run.root.id, page);
    if let Some(entries) = core.cache.get(key) {
        return Ok(entries);
    }
    let entries = Rc::new(read_pages(core, run, page, 1, Class::Foreground).await?);
    core.cache.put(key, entries.clone());
    Ok(entries)
}

/// Reads the entries of pages that follow each other in one segment.
pub(crate) async fn read_pages(
    core: &Core,
    run: &Run,
    page: u64,
    count: u64,
    class: Class,
) -> Result<Vec<Entry>, LogError> {
    let place = run.root.place(&core.segments, page);
    let fences = &run.fences[page as usize..(page + count) as usize];
    let crcs: Vec<u32> = fences.iter().map(|fence| fence.crc).collect();
    let bytes = core.drives.read(place, &crcs, class).await?.to_vec();
    let mut entries = Vec::new();
    for page in bytes.chunks_exact(crate::shape::BLOCK_BYTES as usize) {
        let decoded =
            decode_page(page).ok_or_else(|| LogError::Invalid("a page of the map is malformed".into()))?;
        entries.extend(decoded);
    }
    Ok(entries)
}
