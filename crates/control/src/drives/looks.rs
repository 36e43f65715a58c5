//! Looks at paths: calls of the system that wait for a file system, on helper threads and with a
//! time limit. A path on a mount whose server is gone holds up only who names it, never the
//! executor.
//!
//! Expected faults: file systems that do not answer (a thread waits until they do; a caller has few
//! of these, and each path one), threads that cannot be started.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;

use stripewise_drive::Context;
use stripewise_export::bridge::off_thread;

use crate::daemon::caller::Party;
use crate::drives::inspections::Inspections;

/// Time limit of a look.
pub(crate) const LIMIT_NS: u64 = 5_000_000_000;
/// Maximum concurrent looks for callers below `admin`, and for the others.
const MAX_LOOKS: u64 = 16;
/// Those of one caller below `admin`.
const MAX_LOOKS_OF_ONE: u64 = 4;

/// The looks of a process.
pub(crate) struct Looks {
    places: Inspections,
    /// Paths at which a look has taken too long and still goes on.
    silent: Rc<RefCell<BTreeSet<PathBuf>>>,
}

impl Default for Looks {
    fn default() -> Self {
        Self { places: Inspections::new(MAX_LOOKS, MAX_LOOKS_OF_ONE), silent: Rc::default() }
    }
}

impl Looks {
    /// The result of `work`, which looks at `path`. `party`: the caller that named the path; `None`
    /// for the process's own looks at drives of its pools, which need no place.
    ///
    /// # Errors
    /// `TimedOut` if the file system does not answer; the error of starting a thread.
    pub(crate) async fn at<T: Send + 'static>(
        &self,
        context: &Context,
        party: Option<&Party>,
        path: &Path,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        if self.silent.borrow().contains(path) {
            return Err(silent());
        }
        let place = match party {
            None => None,
            Some(party) => {
                let place = context.time_limit_ns(LIMIT_NS, pin!(self.places.place(party))).await;
                Some(place.map_err(|_| busy())?)
            }
        };
        let (path, silent_paths) = (path.to_owned(), self.silent.clone());
        let looking = context.spawn({
            let path = path.clone();
            async move {
                let looked = off_thread(work).await;
                silent_paths.borrow_mut().remove(&path);
                drop(place);
                looked
            }
        });
        context.time_limit_ns(LIMIT_NS, pin!(looking)).await.unwrap_or_else(|_| {
            self.silent.borrow_mut().insert(path);
            Err(silent())
        })
    }
}

fn silent() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "its file system does not answer")
}

fn busy() -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, "too many looks at other paths wait for an answer")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use stripewise_export::ClientId;
    use stripewise_runtime::RealExecutor;

    use super::*;
    use crate::messages::roles::Class;

    fn party(name: &str, class: Class) -> Party {
        Party { client: ClientId::Named(name.to_owned()), class }
    }

    /// A look that ends when the sender does.
    fn hangs(receiver: Receiver<()>) -> impl FnOnce() + Send {
        move || {
            let _ = receiver.recv();
        }
    }

    #[test]
    fn a_silent_path_costs_its_caller_alone() {
        let executor = RealExecutor::new().expect("io_uring");
        let context = executor.context();
        let looks = Rc::new(Looks::default());
        let (low, head) = (party("low", Class::Operate), party("head", Class::Admin));
        let mut senders = Vec::new();
        executor.block_on(async {
            for number in 0..2 * MAX_LOOKS_OF_ONE {
                let (sender, receiver) = channel();
                senders.push(sender);
                let (looks, of_task, low) = (looks.clone(), context.clone(), low.clone());
                let path = PathBuf::from(format!("/dead/{number}"));
                drop(
                    context
                        .spawn(async move { looks.at(&of_task, Some(&low), &path, hangs(receiver)).await }),
                );
            }
            context.sleep_ns(1_000_000).await;
            let other = party("other", Class::Operate);
            for party in [Some(&other), Some(&head), None] {
                let looked = looks.at(&context, party, Path::new("/dead/0"), || 7).await;
                assert_eq!(looked.ok(), Some(7), "it has a place of its own");
            }
            drop(senders);
            let looked = looks.at(&context, Some(&low), Path::new("/d"), || 7).await;
            assert_eq!(looked.ok(), Some(7), "its places are free again");
        });
    }

    #[test]
    fn a_path_is_looked_at_once_until_it_answers() {
        let executor = RealExecutor::new().expect("io_uring");
        let context = executor.context();
        let looks = Looks::default();
        let (sender, receiver) = channel::<()>();
        executor.block_on(async {
            let path = Path::new("/dead/0");
            looks.silent.borrow_mut().insert(path.to_owned());
            let again = looks.at(&context, None, path, || ()).await;
            assert_eq!(again.map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
            looks.silent.borrow_mut().remove(path);
            let looking = pin!(looks.at(&context, None, path, hangs(receiver)));
            assert!(context.time_limit_ns(1_000_000, looking).await.is_err());
            drop(sender);
            assert!(looks.at(&context, None, path, || ()).await.is_ok());
        });
    }
}
