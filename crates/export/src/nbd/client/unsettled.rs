//! Exports whose server may still carry out changes of a connection that is over, and until when
//! they are left alone: newer data must not be written before older ones.
//!
//! One list for all drives of a thread, since a drive is opened again in many ways: fetched back by
//! its pool, with a pool that is reopened, by hand.
//!
//! Expected faults: servers that take longer than a request may (nothing can be done; `docs/nbd.md`
//! says so).

use std::cell::RefCell;

use stripewise_drive::Context;

use super::uri::NbdAddress;

thread_local! {
    static UNSETTLED: RefCell<Vec<(NbdAddress, u64)>> = const { RefCell::new(Vec::new()) };
}

/// Records that the server of an export may carry out changes until then, ns on the context's
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
    if left_ns > 0 {
        context.sleep_ns(left_ns).await;
    }
}
