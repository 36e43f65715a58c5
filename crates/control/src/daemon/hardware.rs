//! Samples of the hardware of the served pools' drives: every ten minutes, and when a pool has
//! other drives than before.

use std::collections::HashMap;
use std::path::PathBuf;

use crate::control::Control;
use crate::drives::hardware::samples::INTERVAL_NS;
use crate::failure::Result;
use crate::pools::session::Session;

/// Between two checks whether a sample is due.
const LOOK_NS: u64 = 5_000_000_000;

/// A pool's drives as sampled last, and when.
struct Taken {
    drives: Vec<(String, PathBuf)>,
    at_ns: u64,
}

/// Samples for as long as it is polled.
///
/// # Errors
/// Without a state folder.
pub async fn sample_hardware(control: &Control) -> Result<()> {
    let context = control.executor()?.context();
    let folder = control.registry()?.folder().to_owned();
    let mut taken: HashMap<String, Taken> = HashMap::new();
    loop {
        // The sessions end here: a pool can be closed while its drives answer.
        let served: HashMap<String, Vec<(String, PathBuf)>> = Session::all_served(control)
            .iter()
            .map(|session| (session.name().to_owned(), session.drives()))
            .collect();
        taken.retain(|name, _| served.contains_key(name));
        for (name, drives) in served {
            let at_ns = context.now_ns();
            let is_new = |last: &Taken| last.drives == drives && at_ns - last.at_ns < INTERVAL_NS;
            if !taken.get(&name).is_some_and(is_new) {
                taken.insert(name, Taken { drives: drives.clone(), at_ns });
                control.hardware().take(&folder, drives).await;
            }
        }
        context.sleep_ns(LOOK_NS).await;
    }
}
