//! What a stripe's units will hold: new data by unit, widened to whole blocks, the plan of what to
//! read and write, and parity and checksums from old data that were looked at first. A member that
//! goes meanwhile has it planned anew.

use smallvec::SmallVec;
use stripewise_drive::{Buffer, Cause};
use stripewise_layout::{Place, Stripe, UnitRange, WriteMethod, plan_write};

use crate::array::{BLOCK_BYTES, Inner};
use crate::checksums::Pin;
use crate::error::ArrayError;
use crate::member::Class;
use crate::stripe_table::Piece;
use crate::write::work::Work;
use crate::write::{UnitParts, written_ranges};

impl Inner {
    /// Splits the pieces by unit, completes blocks and virgin stripes, and plans.
    pub(super) async fn prepare(&self, work: &mut Work) -> Result<(), ArrayError> {
        let virgin = self.regions.is_virgin(work.index);
        work.virgin = virgin;
        if let [(_, piece)] = &mut work.taken[..]
            && !(piece.from.is_multiple_of(BLOCK_BYTES) && piece.to().is_multiple_of(BLOCK_BYTES))
        {
            let whole = Box::pin(self.complete_blocks(&work.stripe, piece, virgin)).await?;
            *piece = whole;
        }
        let mut order: SmallVec<[&Piece; 4]> = work.taken.iter().map(|(_, piece)| piece).collect();
        order.sort_by_key(|piece| piece.from);
        work.parts = (0..self.geometry.data_units()).map(|_| UnitParts::new()).collect();
        for piece in order {
            let mut at = 0;
            for range in self.geometry.data_ranges(piece.from, piece.to()) {
                let length = range.length() as usize;
                work.parts[range.unit].push((range.start, piece.data.slice(at..at + length)));
                at += length;
            }
        }
        if virgin {
            for parts in &mut work.parts {
                self.pad_with_zeroes(parts);
            }
        }
        self.plan(work)
    }

    /// The piece widened to whole blocks with what the stripe holds there.
    pub async fn complete_blocks(
        &self,
        stripe: &Stripe,
        piece: &Piece,
        virgin: bool,
    ) -> Result<Piece, ArrayError> {
        let from = piece.from / BLOCK_BYTES * BLOCK_BYTES;
        let to = piece.to().next_multiple_of(BLOCK_BYTES);
        let whole = self.buffers.allocate((to - from) as usize);
        let mut edges: SmallVec<[u64; 2]> = SmallVec::new();
        if piece.from != from {
            edges.push(from);
        }
        if piece.to() != to && edges.first() != Some(&(to - BLOCK_BYTES)) {
            edges.push(to - BLOCK_BYTES);
        }
        for edge in edges {
            let target = whole.slice((edge - from) as usize..(edge - from + BLOCK_BYTES) as usize);
            // What is left of a block that is lost cannot be told, so it would stay lost, and with
            // it what is written now.
            let at = stripe.index * self.geometry.stripe_data_bytes() + edge;
            self.check_alive(at, at + BLOCK_BYTES)?;
            if virgin {
                target.fill(0);
            } else {
                self.fetch_data(stripe, edge, &target, Class::Foreground).await?;
            }
        }
        let at = (piece.from - from) as usize;
        whole.slice(at..at + piece.data.len()).copy_from(&piece.data);
        Ok(Piece { from, data: whole, fua: piece.fua, class: piece.class, room: piece.room.clone() })
    }

    /// Extends a unit's new data to the whole strip with zeros.
    pub(super) fn pad_with_zeroes(&self, parts: &mut UnitParts) {
        let interleave = self.geometry.interleave_bytes();
        let zeroes = |length: u64| self.zeroes.slice(0..length as usize);
        let Some((first, _)) = parts.first() else {
            parts.push((0, zeroes(interleave)));
            return;
        };
        if *first > 0 {
            let length = *first;
            parts.insert(0, (0, zeroes(length)));
        }
        let (last, data) = parts.last().expect("just seen");
        let end = last + data.len() as u64;
        if end < interleave {
            parts.push((end, zeroes(interleave - end)));
        }
    }

    pub(super) fn plan(&self, work: &mut Work) -> Result<(), ArrayError> {
        // Before looking at what is missing: a protected array may have members missing that must
        // not be written without.
        self.check_writable()?;
        let written = written_ranges(&work.parts);
        let missing = self.missing_in(work.index);
        let plan = plan_write(&self.geometry, &work.stripe, &written, &missing)
            .map_err(|lost| ArrayError::Lost { stripe: work.index, what: lost.to_string() })?;
        self.count(|counters| match plan.method {
            WriteMethod::Copy => {}
            WriteMethod::FullStripe => counters.full_stripe_writes += 1,
            WriteMethod::ReadModifyWrite => counters.read_modify_writes += 1,
            WriteMethod::ReconstructWrite | WriteMethod::DecodeWrite => counters.reconstruct_writes += 1,
        });
        for &range in &plan.reads {
            let buffer = self.buffers.allocate(range.length() as usize);
            let answer = if self.is_lost(&work.stripe, range) {
                self.lost_answer(&work.stripe, range)
            } else {
                self.submit_unit_read(&work.stripe, range, work.class, Cause::PreRead, buffer.clone())
            };
            work.reads.push((range, buffer, answer));
        }
        work.plan = Some(plan);
        Ok(())
    }

    /// Loads the checksum pages that the writes will change, while what has to be read of the old
    /// data is being read.
    pub(super) async fn load_pages(&self, works: &mut [Box<Work>]) -> Vec<Pin> {
        if self.sums.get().is_none() {
            return Vec::new();
        }
        let mut ranges: SmallVec<[(Place, u64); 16]> = SmallVec::new();
        for work in works.iter().filter(|work| work.result.is_ok()) {
            let Some(plan) = &work.plan else { continue };
            ranges.extend(plan.writes.iter().chain(&plan.reads).map(|range| {
                let place = work.stripe.units[range.unit];
                (Place { offset_bytes: place.offset_bytes + range.start, ..place }, range.length())
            }));
        }
        match self.load_sums(&ranges).await {
            Ok(pages) => pages,
            Err(error) => {
                for work in works {
                    let result = std::mem::replace(&mut work.result, Ok(()));
                    work.result = result.and(Err(error.clone()));
                }
                Vec::new()
            }
        }
    }

    /// Awaits the reads and computes parity.
    pub(super) async fn read_and_compute(&self, work: &mut Work) -> Result<(), ArrayError> {
        let old = loop {
            let mut old: SmallVec<[(UnitRange, Buffer); 4]> = SmallVec::new();
            let mut planned_for = self.missing_in(work.index);
            for (range, mut buffer, answer) in std::mem::take(&mut work.reads) {
                let answer = answer.await;
                let is_right = answer.is_ok() && self.is_unit_right(&work.stripe, range, &buffer).await?;
                if !is_right {
                    if let Err(error) = &answer
                        && !self.is_lost(&work.stripe, range)
                    {
                        self.note_read_error(error).await?;
                    }
                    planned_for = self.missing_in(work.index);
                    if !planned_for.contains(work.stripe.units[range.unit].member) {
                        buffer = Box::pin(self.fetch_unit(&work.stripe, range, work.class)).await?;
                    }
                }
                old.push((range, buffer));
            }
            let plan = work.plan.as_ref().expect("planned");
            let needed =
                plan.reads.iter().all(|range| !planned_for.contains(work.stripe.units[range.unit].member));
            let unchanged = planned_for == self.missing_in(work.index);
            if needed && unchanged {
                break old;
            }
            // A member went while its old data were being read: what is to be read and written is
            // another matter now.
            self.plan(work)?;
        };
        let plan = work.plan.as_ref().expect("planned");
        work.parity = self.new_parity(&work.parts, plan, &old);
        work.sums = self.new_sums(&work.stripe, &work.parts, plan, &work.parity).await?;
        Ok(())
    }
}
