//! A thread that another one can visit, without a word of what runs it.

/// A thread with an executor of its own, as another thread reaches it.
pub trait Shard: Send + Sync {
    /// Runs `look` on the thread, between two polls of its tasks, while the caller's thread waits;
    /// `look` must not wait for anything. `false`: the thread has ended, and `look` was not run.
    fn visit(&self, look: &mut (dyn FnMut() + Send)) -> bool;
}
