//! Look-ups of logical blocks in the sealed log.

use std::rc::Rc;

use stripewise_array::Class;

use crate::core::Core;
use crate::error::LogError;
use crate::map::entry::{Entry, Value};
use crate::map::page::decode_page;
use crate::map::run::Run;

/// Finds a logical block. The caller holds a read ticket if it reads the place that it gets.
pub(crate) async fn look_up(core: &Core, lba: u64) -> Result<Option<Value>, LogError> {
    let runs = {
        let map = &core.state.borrow().map;
        if let Some(value) = map.in_memory(lba) {
            return Ok(Some(value));
        }
        map.runs.clone()
    };
    look_up_in_runs(core, &runs, lba).await
}

/// Finds a logical block in runs, the newest first.
pub(crate) async fn look_up_in_runs(
    core: &Core,
    runs: &[Rc<Run>],
    lba: u64,
) -> Result<Option<Value>, LogError> {
    for run in runs {
        let Some(page) = run.page_of(lba) else { continue };
        let entries = page_of_run(core, run, page).await?;
        let after = entries.partition_point(|entry| entry.lba <= lba);
        if let Some(entry) = after.checked_sub(1).map(|index| entries[index])
            && lba < entry.end()
        {
            return Ok(Some(entry.value));
        }
    }
    Ok(None)
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
