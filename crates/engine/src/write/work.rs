//! One stripe on its way through the steps of a write: the pieces of requests that are carried out
//! together, and what each step leaves for the next.

use std::rc::Rc;

use smallvec::SmallVec;
use stripewise_drive::{Buffer, Completion, Segments};
use stripewise_layout::{Stripe, UnitRange, WriteMethod, WritePlan};

use crate::array::{BLOCK_BYTES, Inner};
use crate::error::ArrayError;
use crate::journal::Kind;
use crate::member::Class;
use crate::regions::WriteIntent;
use crate::stripe_table::{Piece, Ticket};
use crate::sums::NewSums;
use crate::write_log::Logged;

/// New data of one data unit: parts in order, without gaps.
pub(crate) type UnitParts = SmallVec<[(u64, Buffer); 1]>;

/// The stripes that one request leads. Each on the heap: they are handed from step to step, and are
/// large.
pub(super) type Works = SmallVec<[Box<Work>; 1]>;

/// One stripe on its way through the steps of a write.
pub(super) struct Work {
    pub(super) index: u64,
    pub(super) stripe: Stripe,
    pub(super) taken: Vec<(Rc<Ticket>, Piece)>,
    pub(super) parts: SmallVec<[UnitParts; 8]>,
    pub(super) fua: bool,
    /// Of the most urgent of its pieces.
    pub(super) class: Class,
    pub(super) plan: Option<WritePlan>,
    pub(super) reads: SmallVec<[(UnitRange, Buffer, Completion); 4]>,
    pub(super) writes: SmallVec<[(UnitRange, Segments, Completion); 8]>,
    pub(super) intent: Option<WriteIntent>,
    /// The stripe was never written, so what it held before is known to be zeros.
    pub(super) virgin: bool,
    pub(super) parity: SmallVec<[Buffer; 3]>,
    pub(super) sums: NewSums,
    pub(super) logged: Option<Logged>,
    /// What was sent has been waited for.
    pub(super) in_place: bool,
    /// The journal has the data already, up to this record.
    pub(super) covers: Option<u64>,
    pub(super) result: Result<(), ArrayError>,
}

impl Work {
    pub(super) fn of(stripe: Stripe) -> Self {
        Self {
            index: stripe.index,
            stripe,
            taken: Vec::new(),
            parts: SmallVec::new(),
            fua: false,
            class: Class::Foreground,
            plan: None,
            reads: SmallVec::new(),
            writes: SmallVec::new(),
            intent: None,
            virgin: false,
            parity: SmallVec::new(),
            sums: NewSums::new(),
            logged: None,
            in_place: false,
            covers: None,
            result: Ok(()),
        }
    }

    /// Of a full stripe, and where there is no parity, the journal keeps only that it is being
    /// written.
    pub(super) fn record_kind(&self) -> Kind {
        match (self.covers, self.plan.as_ref().expect("planned").method) {
            (Some(_), _) => Kind::Parity,
            (None, WriteMethod::FullStripe | WriteMethod::Copy) => Kind::Intent,
            (None, _) => Kind::Redo,
        }
    }

    /// What the journal holds whole is durable already.
    pub(super) fn is_fua_in_place(&self) -> bool {
        self.fua && self.logged.is_none_or(|logged| logged.kind != Kind::Redo)
    }
}

impl Inner {
    /// Takes the pieces to carry out together: aligned to blocks, without overlap, and without gaps
    /// within a unit.
    pub(super) fn begin(&self, index: u64) -> Box<Work> {
        let taken = self.table.take_pieces(index, |taken, next| {
            let aligned = |piece: &Piece| {
                piece.from.is_multiple_of(BLOCK_BYTES) && piece.to().is_multiple_of(BLOCK_BYTES)
            };
            taken.iter().all(|(_, piece)| aligned(piece)) && aligned(next) && self.fits(taken, next)
        });
        if taken.len() > 1 {
            self.count(|counters| counters.merged_writes += taken.len() as u64 - 1);
        }
        let is_urgent = taken.iter().any(|(_, piece)| piece.class == Class::Foreground);
        let class = if is_urgent { Class::Foreground } else { Class::Background };
        let fua = taken.iter().any(|(_, piece)| piece.fua);
        Box::new(Work { fua, class, taken, ..Work::of(self.geometry.stripe(index)) })
    }

    fn fits(&self, taken: &[(Rc<Ticket>, Piece)], next: &Piece) -> bool {
        let ranges_of = |piece: &Piece| self.geometry.data_ranges(piece.from, piece.to());
        ranges_of(next).all(|range| {
            let (mut start, mut end) = (u64::MAX, 0);
            for other in
                taken.iter().flat_map(|(_, piece)| ranges_of(piece)).filter(|other| other.unit == range.unit)
            {
                start = start.min(other.start);
                end = end.max(other.end);
            }
            start == u64::MAX || range.end == start || range.start == end
        })
    }
}

pub(crate) fn written_ranges(parts: &[UnitParts]) -> SmallVec<[UnitRange; 8]> {
    parts
        .iter()
        .enumerate()
        .filter_map(|(unit, parts)| {
            let (start, _) = parts.first()?;
            let (last, data) = parts.last()?;
            Some(UnitRange { unit, start: *start, end: last + data.len() as u64 })
        })
        .collect()
}
