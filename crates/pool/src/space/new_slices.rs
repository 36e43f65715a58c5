//! Placement of a new volume that is cut into slices: each has rows, a map and a journal of its
//! own. Pure; the only fault expected is that there is not enough room.

use stripewise_layout::Slicing;

use crate::space::new_volume::{LaidOut, NotLaidOut, Wish, lay_out};
use crate::space::slabs::FreeSlabs;

/// Places of a volume's parts.
pub(crate) struct LaidOutParts {
    pub size_bytes: u64,
    /// In the order of the slices.
    pub parts: Vec<LaidOut>,
}

impl LaidOutParts {
    /// Gives back all that was taken for it.
    pub(crate) fn give_back(self, space: &mut FreeSlabs) {
        self.parts.into_iter().for_each(|part| part.give_back(space));
    }
}

/// Finds places for the parts of a volume, and takes them: for one part if it has no slices.
pub(crate) fn lay_out_parts(
    space: &mut FreeSlabs,
    wish: &Wish<'_>,
    slicing: Option<Slicing>,
) -> Result<LaidOutParts, NotLaidOut> {
    let Some(slicing) = slicing else {
        let part = lay_out(space, wish)?;
        return Ok(LaidOutParts { size_bytes: part.size_bytes, parts: vec![part] });
    };
    let turn_bytes = slicing.slices() as u64 * slicing.extent_bytes();
    let row_bytes = wish.spec.row_data_bytes()?;
    let Some(size_bytes) = wish.size_bytes else {
        let possible_bytes = space.max_rows(&wish.drives, wish.spec.shape.width).saturating_mul(row_bytes);
        let turns = most_turns(space, wish, slicing, possible_bytes / turn_bytes)?;
        return match turns {
            0 => Err(NotLaidOut::NoRoom { needed_rows: slicing.slices() as u64, possible_rows: 0 }),
            turns => attempt(space, wish, slicing, turns * turn_bytes),
        };
    };
    let needed_rows = |size_bytes: u64| -> u64 {
        let rows = |slice: usize| slicing.bytes_below(slice, size_bytes).div_ceil(row_bytes);
        (0..slicing.slices()).map(rows).sum()
    };
    match attempt(space, wish, slicing, size_bytes) {
        Err(NotLaidOut::NoRoom { .. }) => {
            let turns = most_turns(&mut space.clone(), wish, slicing, size_bytes / turn_bytes)?;
            Err(NotLaidOut::NoRoom {
                needed_rows: needed_rows(size_bytes),
                possible_rows: turns * turn_bytes / row_bytes,
            })
        }
        laid_out => laid_out,
    }
}

/// The most extents of each slice that there is room for, at most `most`.
fn most_turns(
    space: &mut FreeSlabs,
    wish: &Wish<'_>,
    slicing: Slicing,
    most: u64,
) -> Result<u64, NotLaidOut> {
    let turn_bytes = slicing.slices() as u64 * slicing.extent_bytes();
    let (mut low, mut high) = (0, most + 1);
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        match attempt(space, wish, slicing, middle * turn_bytes) {
            Ok(laid_out) => {
                laid_out.give_back(space);
                low = middle;
            }
            Err(NotLaidOut::NoRoom { .. }) => high = middle,
            Err(other) => return Err(other),
        }
    }
    Ok(low)
}

/// Takes places for all slices of a volume of this size, or for none.
fn attempt(
    space: &mut FreeSlabs,
    wish: &Wish<'_>,
    slicing: Slicing,
    size_bytes: u64,
) -> Result<LaidOutParts, NotLaidOut> {
    let mut laid_out = LaidOutParts { size_bytes, parts: Vec::new() };
    for slice in 0..slicing.slices() {
        let size_bytes = Some(slicing.bytes_below(slice, size_bytes));
        match lay_out(space, &Wish { size_bytes, drives: wish.drives.clone(), ..*wish }) {
            Ok(part) => laid_out.parts.push(part),
            Err(error) => {
                laid_out.give_back(space);
                return Err(error);
            }
        }
    }
    Ok(laid_out)
}

#[cfg(test)]
mod tests {
    use stripewise_array::ArraySpec;
    use stripewise_array::tuning::Tuning;
    use stripewise_layout::{LayoutSpec, Level};

    use super::*;
    use crate::MIB;
    use crate::testing::pool;

    fn laid_out(size_bytes: Option<u64>, thin: bool) -> (FreeSlabs, Result<LaidOutParts, NotLaidOut>) {
        let mut space = FreeSlabs::new(&pool(&[64; 4], MIB));
        let shape = LayoutSpec::new(Level::Raid5).resolve(4).expect("a shape");
        let spec = ArraySpec { id: 1, shape, slab_bytes: MIB };
        let wish = Wish {
            spec: &spec,
            size_bytes,
            thin,
            with_journal: true,
            grain: Tuning::default().map_grain,
            drives: (0..4).collect(),
            is_seek_bound: false,
        };
        let laid_out = lay_out_parts(&mut space, &wish, Some(Slicing::new(3, 6 * MIB)));
        (space, laid_out)
    }

    #[test]
    fn slices_share_a_size_and_take_all_of_the_room() {
        let (_, all) = laid_out(None, false);
        let all = all.ok().expect("room");
        assert_eq!((all.parts.len(), all.size_bytes % (18 * MIB)), (3, 0));
        let rows: Vec<u64> = all.parts.iter().map(|part| part.rows.rows()).collect();
        assert_eq!(rows.iter().sum::<u64>() * 3 * MIB, all.size_bytes);
        let (_, uneven) = laid_out(Some(20 * MIB), false);
        let sizes: Vec<u64> = uneven.ok().expect("room").parts.iter().map(|part| part.size_bytes).collect();
        assert_eq!(sizes, [8 * MIB, 6 * MIB, 6 * MIB]);
        let (_, more) = laid_out(Some(all.size_bytes + 18 * MIB), false);
        assert!(matches!(more, Err(NotLaidOut::NoRoom { needed_rows, possible_rows })
            if possible_rows * 3 * MIB == all.size_bytes && needed_rows == possible_rows + 6));
    }

    #[test]
    fn refused_slices_leave_the_space_free() {
        for thin in [false, true] {
            let (mut space, refused) = laid_out(Some(1 << 50), thin);
            assert!(matches!(refused, Err(NotLaidOut::NoRoom { .. })));
            let mut free = FreeSlabs::new(&pool(&[64; 4], MIB));
            for drive in 0..4 {
                assert_eq!(space.free_slabs(drive), free.free_slabs(drive));
            }
            let whole = |space: &mut FreeSlabs| space.allocate_rows(&[0, 1, 2, 3], 4, 20, 0).is_ok();
            assert!(whole(&mut space) && whole(&mut free));
        }
    }
}
