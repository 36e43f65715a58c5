//! Throughput by request size and requests in flight, for runs that vary both.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::records::record::RunRecord;
use crate::reports::tables::number;

/// Block length by depth, if a run varies both: one map for each operation.
pub(super) fn heat_map(page: &mut String, run: &RunRecord) {
    let mut maps: BTreeMap<String, BTreeMap<(u64, u32), f64>> = BTreeMap::new();
    for figure in &run.measurements {
        let depth = figure.queue_depth.unwrap_or(1) * figure.workers.unwrap_or(1);
        if let (Some(block), Some(rate)) = (figure.block_bytes, figure.mb_per_s) {
            maps.entry(format!("{:?}", figure.op).to_lowercase()).or_default().insert((block, depth), rate);
        }
    }
    for (op, cells) in maps {
        let mut blocks: Vec<u64> = cells.keys().map(|(block, _)| *block).collect();
        let mut depths: Vec<u32> = cells.keys().map(|(_, depth)| *depth).collect();
        for_unique(&mut blocks);
        for_unique(&mut depths);
        if blocks.len() < 2 || depths.len() < 2 {
            continue;
        }
        let most = cells.values().copied().fold(0.0, f64::max);
        let _ = write!(
            page,
            "<div class=\"scroll\"><table class=\"heat\"><caption>{op}: MB/s by block length and \
             requests in flight</caption>\n<tr><th></th>"
        );
        for depth in &depths {
            let _ = write!(page, "<th>{depth}</th>");
        }
        page.push_str("</tr>\n");
        for block in &blocks {
            let _ = write!(page, "<tr><th>{}</th>", crate::method::size_text(*block));
            for depth in &depths {
                match cells.get(&(*block, *depth)) {
                    Some(rate) => {
                        let share = (rate / most * 100.0).round();
                        let _ = write!(
                            page,
                            "<td style=\"background:color-mix(in srgb, #2a78d6 {share}%, \
                             transparent)\">{}</td>",
                            number(*rate)
                        );
                    }
                    None => page.push_str("<td></td>"),
                }
            }
            page.push_str("</tr>\n");
        }
        page.push_str("</table></div>\n");
    }
}

fn for_unique<T: Ord>(values: &mut Vec<T>) {
    values.sort_unstable();
    values.dedup();
}
