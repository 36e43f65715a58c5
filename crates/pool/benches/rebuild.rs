//! Prints the speedup of a rebuild into distributed spare space over one onto a dedicated spare, in
//! virtual time on drives of constant bandwidth, and the share of four disks that a rebuild gets
//! beside random writes; `tests/it/jobs/rebuild_speed.rs` asserts the bounds.

#[path = "../tests/it/kit/mod.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod kit;
#[path = "../tests/it/jobs/rebuild_speed/measure.rs"]
mod measure;

fn main() {
    println!("drives  layout      columns  onto a spare  distributed  times as fast  of (n-1)/k");
    for drives in [12, 24, 48] {
        for (layout, columns) in [("raid1", 2), ("raid5", 4), ("raid5", 6), ("raid6", 10)] {
            let dedicated = measure::rebuild_seconds(drives, layout, columns, true);
            let distributed = measure::rebuild_seconds(drives, layout, columns, false);
            // Strips read or written per strip rebuilt: the data units, and the one written.
            let strips = measure::strips_per_strip(layout, columns);
            let ideal = (drives - 1) as f64 / strips as f64;
            let ratio = dedicated / distributed;
            println!(
                "{drives:6}  {layout:10}  {columns:7}  {dedicated:10.3} s  {distributed:9.3} s  {ratio:13.2}  {:10.2}",
                ratio / ideal
            );
        }
    }
    println!("random writes in flight  rebuild's share of the disks");
    for writers in [1, 16, 256] {
        println!("{writers:24}  {:28.3}", measure::rebuild_share_beside(writers));
    }
}
