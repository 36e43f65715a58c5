//! Arrays of a pool, made and opened on the thread that they will live on.
//!
//! What goes there can be sent: places, and drives named by their labels. There the labels are
//! resolved to queues, and the array gets the clock, the buffers and the way to the pool that
//! belong to the thread. So far there is one such thread, that of the pool.

use std::rc::Rc;

use crate::Inner;
use crate::volume::shadow::Shadow;
use crate::volume::thin::PoolHost;
use stripewise_array::{Array, ArrayError, ArrayHandle, ArrayHost, ArrayInit, Member, MemberLabel};

/// Parameters of an array that another thread could be given.
pub(crate) type NamedInit = ArrayInit<MemberLabel>;

impl Inner {
    /// Makes a new array.
    pub(crate) async fn create_array(&self, init: NamedInit) -> Result<ArrayHandle, ArrayError> {
        let (host, options) = (PoolHost::of(self), self.options.array);
        let init = can_be_sent(init).on_thread_of(&*host);
        Array::create(&self.context, &self.buffers, init, host, options).await.map(ArrayHandle::from)
    }

    /// Opens an array that exists.
    pub(crate) async fn open_array(&self, init: NamedInit) -> Result<ArrayHandle, ArrayError> {
        let host = PoolHost::of(self);
        let init = can_be_sent(init).on_thread_of(&*host);
        self.open_resolved(init, host).await.map(ArrayHandle::from)
    }

    /// Opens an array for reading only, since what its journal holds cannot be put in place: the
    /// file system under `drive` is full.
    pub(crate) async fn open_array_in_memory(
        &self,
        init: NamedInit,
        drive: &str,
    ) -> Result<ArrayHandle, ArrayError> {
        let host = PoolHost::of(self);
        let mut init = can_be_sent(init).on_thread_of(&*host);
        init.read_only = true;
        for array_member in &mut init.members {
            let shadow = Shadow::over_member(&self.context, &array_member.member);
            array_member.member = Member::new(&self.context, shadow, self.options.member());
            self.drives.add_shadow(array_member.member.clone());
        }
        let array = self.open_resolved(init, host).await?;
        array.fill_up(drive);
        Ok(array.into())
    }

    async fn open_resolved(&self, init: ArrayInit, host: Rc<dyn ArrayHost>) -> Result<Array, ArrayError> {
        Array::open(&self.context, &self.buffers, init, host, self.options.array).await
    }
}

/// Has the compiler prove that a value can go to another thread.
fn can_be_sent<T: Send + 'static>(value: T) -> T {
    value
}
