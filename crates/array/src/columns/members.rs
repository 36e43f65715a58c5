//! The drives that an array has at hand.

use stripewise_drive::{Completion, DriveErrorKind, IoRequest};

use crate::array::spec::ArrayMember;

/// Drives at hand, by number.
#[derive(Default)]
pub(crate) struct Members(Vec<Option<ArrayMember>>);

impl Members {
    pub(crate) fn get(&self, number: u32) -> Option<&ArrayMember> {
        self.0.get(number as usize)?.as_ref()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ArrayMember> + Clone {
        self.0.iter().flatten()
    }

    pub(crate) fn insert(&mut self, member: ArrayMember) {
        let index = member.number as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, None);
        }
        self.0[index] = Some(member);
    }

    pub(crate) fn remove(&mut self, number: u32) {
        if let Some(member) = self.0.get_mut(number as usize) {
            *member = None;
        }
    }
}

/// The answer for a place that no drive at hand has.
pub(crate) fn gone(request: &IoRequest) -> Completion {
    Completion::ready(Err(request.error(&"missing drive".into(), DriveErrorKind::Gone, None)))
}
