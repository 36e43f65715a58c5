//! Speedup, in virtual time on drives of constant bandwidth, of rebuilding one drive of many into
//! distributed spare space over a rebuild onto one dedicated spare. Virtual time is exact, so the
//! bound holds or it does not.

mod measure;
use measure::{rebuild_seconds, rebuild_share_beside, strips_per_strip};

#[test]
fn distributed_rebuild_scales_with_the_drive_count() {
    for drives in [12, 24] {
        for (layout, columns) in [("raid1", 2), ("raid5", 4), ("raid5", 6)] {
            let dedicated = rebuild_seconds(drives, layout, columns, true);
            let distributed = rebuild_seconds(drives, layout, columns, false);
            // Strips read or written per strip rebuilt.
            let ideal = (drives - 1) as f64 / strips_per_strip(layout, columns) as f64;
            let ratio = dedicated / distributed;
            println!(
                "{drives} drives, {layout} of {columns}: {dedicated:.3} s onto a spare, \
                 {distributed:.3} s distributed: {ratio:.2} times as fast, {:.2} of {ideal:.2}",
                ratio / ideal
            );
            assert!(
                ratio >= 0.85 * ideal,
                "{drives} drives, {layout} of {columns}: {ratio:.2} of {ideal:.2}"
            );
        }
    }
}

/// Rebuilt rows must not wait for clients' writes, which would take seconds each with few rows
/// rebuilt concurrently.
#[test]
fn rebuild_beside_writes_gets_its_share() {
    let share = rebuild_share_beside(256);
    println!("{share:.3} of the drives' time");
    assert!((0.25..0.4).contains(&share), "{share:.3}");
}
