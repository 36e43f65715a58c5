//! Exports whose server may still execute changes of a connection that is over, and the time until
//! which they are left alone: older data must not overwrite newer data.
//!
//! One list for all drives of a thread, since a drive is reopened in many ways: reconnected by its
//! pool, with a reopened pool, by hand.
//!
//! Expected faults: servers that take longer than a request may (nothing can be done; `docs/nbd.md`
//! says so).

use std::cell::RefCell;

use stripewise_array::mutation::{self, Mutation};
use stripewise_drive::Context;

use super::uri::NbdAddress;

thread_local! {
    static UNSETTLED: RefCell<Vec<(NbdAddress, u64)>> = const { RefCell::new(Vec::new()) };
}

/// Records that the server of an export may execute changes until `until_ns`, on the context's
/// clock.
pub(super) fn note(context: &Context, address: &NbdAddress, until_ns: u64) {
    let now_ns = context.now_ns();
    UNSETTLED.with_borrow_mut(|list| {
        list.retain(|(_, until_ns)| now_ns < *until_ns);
        if now_ns < until_ns {
            list.push((address.clone(), until_ns));
        }
    });
}

/// Waits until the export can be written to again.
pub(super) async fn until_settled(context: &Context, address: &NbdAddress) {
    let of_it = |list: &Vec<(NbdAddress, u64)>| {
        list.iter().filter(|(other, _)| other == address).map(|(_, until_ns)| *until_ns).max()
    };
    let until_ns = UNSETTLED.with_borrow(of_it).unwrap_or(0);
    let left_ns = until_ns.saturating_sub(context.now_ns());
    if left_ns > 0 && !mutation::is_chosen(Mutation::UnsettledServerAsked) {
        context.sleep_ns(left_ns).await;
    }
}
