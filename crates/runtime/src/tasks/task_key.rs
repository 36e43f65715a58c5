//! Identity of a task: executor, slot in its table and the slot's generation, packed into one
//! machine word.

/// Identity of a task: a slot of an executor's table, and the number of tasks that used it before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TaskKey {
    pub(crate) executor: u16,
    /// A waker carries only the low 24 bits.
    pub(crate) generation: u32,
    pub(crate) index: u32,
}

pub(crate) const INDEX_BITS: u32 = 24;
pub(crate) const GENERATION_MASK: u32 = (1 << 24) - 1;

const _: () = assert!(usize::BITS == 64, "wakers pack three numbers into one 64-bit word");

impl TaskKey {
    pub(crate) fn pack(self) -> *const () {
        let word = (self.executor as usize) << 48
            | ((self.generation & GENERATION_MASK) as usize) << INDEX_BITS
            | self.index as usize;
        std::ptr::without_provenance(word)
    }

    pub(crate) fn unpack(data: *const ()) -> Self {
        let word = data.addr();
        Self {
            executor: (word >> 48) as u16,
            generation: (word >> INDEX_BITS) as u32 & GENERATION_MASK,
            index: word as u32 & ((1 << INDEX_BITS) - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_keys_round_trip_through_a_word() {
        for key in [
            TaskKey { executor: 0, generation: 0, index: 0 },
            TaskKey { executor: u16::MAX, generation: GENERATION_MASK, index: (1 << INDEX_BITS) - 1 },
            TaskKey { executor: 1, generation: 2, index: 3 },
        ] {
            assert_eq!(TaskKey::unpack(key.pack()), key);
        }
    }
}
