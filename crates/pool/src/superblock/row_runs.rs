//! Rows of a slab map as bytes: a few bytes for a run on equal drives, two or three per column
//! where slabs are scattered.
//!
//! Each run is coded against the one before it in the same record, so that a map that grew in order
//! takes hardly any room. Faults expected: bytes of any kind; what is decoded takes memory in
//! proportion to the bytes, and is checked by
//! [`check_runs`] before it is believed.

use stripewise_array::rows::{Places, ROWS_PER_BLOCK, Run, SlotPlace, SlotState, check_runs};

/// Every column lies on the same drive as in the run before.
const SAME_DRIVES: u8 = 1;
/// Every column is current.
const ALL_ACTIVE: u8 = 2;
/// Every column has the same slab number.
const SAME_SLABS: u8 = 4;

/// New contents for rows `from` to `to` of a map, all within one block: runs, and holes between
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Patch {
    pub from: u64,
    pub to: u64,
    pub runs: Vec<Run>,
}

/// Adds a number in groups of seven bits, lowest first, the top bit set in all bytes but the last.
pub(crate) fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads bytes from the front; `None` once there are too few, or a number passes 64 bits.
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N).map(|bytes| bytes.try_into().expect("as many as asked for"))
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }
}

fn zigzag(difference: i64) -> u64 {
    (difference << 1 ^ difference >> 63) as u64
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

fn state_code(state: SlotState) -> u8 {
    match state {
        SlotState::Active => 0,
        SlotState::Missing => 1,
        SlotState::Rebuilding => 2,
        SlotState::CatchingUp => 3,
    }
}

fn state_of(code: u8) -> Option<SlotState> {
    Some(match code {
        0 => SlotState::Active,
        1 => SlotState::Missing,
        2 => SlotState::Rebuilding,
        3 => SlotState::CatchingUp,
        _ => return None,
    })
}

/// The slab that a column would have if the run went on.
fn expected_slab(previous: Option<&Run>, column: usize) -> i64 {
    previous.map_or(0, |run| i64::from(run.places[column].slab) + run.rows as i64)
}

/// Adds a patch of a map of `width` columns.
pub(crate) fn put_patch(bytes: &mut Vec<u8>, width: usize, patch: &Patch) {
    put_number(bytes, patch.from);
    put_number(bytes, patch.to - patch.from);
    put_number(bytes, patch.runs.len() as u64);
    let mut previous: Option<&Run> = None;
    let mut at = patch.from;
    for run in &patch.runs {
        debug_assert_eq!(run.places.len(), width);
        put_number(bytes, run.first_row - at);
        put_number(bytes, run.rows);
        let same_drives = previous.is_some_and(|before| {
            before.places.iter().zip(&run.places).all(|(before, place)| before.drive == place.drive)
        });
        let all_active = run.places.iter().all(|place| place.state == SlotState::Active);
        let same_slabs = run.places.iter().all(|place| place.slab == run.places[0].slab);
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags =
            flag(same_drives, SAME_DRIVES) | flag(all_active, ALL_ACTIVE) | flag(same_slabs, SAME_SLABS);
        bytes.push(flags);
        if !same_drives {
            run.places.iter().for_each(|place| put_number(bytes, u64::from(place.drive)));
        }
        if !all_active {
            bytes.extend(run.places.iter().map(|place| state_code(place.state)));
        }
        let slabs = if same_slabs { 1 } else { width };
        for column in 0..slabs {
            let difference = i64::from(run.places[column].slab) - expected_slab(previous, column);
            put_number(bytes, zigzag(difference));
        }
        at = run.end_row();
        previous = Some(run);
    }
}

/// Reads a patch of a map of `width` columns; `None` for what cannot be one.
pub(crate) fn take_patch(reader: &mut Reader<'_>, width: usize) -> Option<Patch> {
    let from = reader.number()?;
    let rows = reader.number()?;
    let to = from.checked_add(rows)?;
    let count = reader.number()?;
    if rows == 0 || from / ROWS_PER_BLOCK != (to - 1) / ROWS_PER_BLOCK || count > rows || width == 0 {
        return None;
    }
    let mut runs: Vec<Run> = Vec::new();
    let mut at = from;
    for _ in 0..count {
        let run = take_run(reader, width, at, runs.last())?;
        at = run.first_row.checked_add(run.rows)?;
        runs.push(run);
    }
    check_runs(&runs, from, to, width).ok()?;
    Some(Patch { from, to, runs })
}

fn take_run(reader: &mut Reader<'_>, width: usize, at: u64, previous: Option<&Run>) -> Option<Run> {
    let first_row = at.checked_add(reader.number()?)?;
    let rows = reader.number()?;
    if rows > ROWS_PER_BLOCK {
        return None;
    }
    let flags = reader.byte()?;
    if flags & !(SAME_DRIVES | ALL_ACTIVE | SAME_SLABS) != 0 {
        return None;
    }
    let mut places: Places = if flags & SAME_DRIVES != 0 {
        let at_first = |place: &SlotPlace| SlotPlace { drive: place.drive, ..ZERO };
        previous?.places.iter().map(at_first).collect()
    } else {
        let drive = |_| Some(SlotPlace { drive: u32::try_from(reader.number()?).ok()?, ..ZERO });
        (0..width).map(drive).collect::<Option<Places>>()?
    };
    if flags & ALL_ACTIVE == 0 {
        for place in &mut places {
            place.state = state_of(reader.byte()?)?;
        }
    }
    let mut slab_of = |column: usize| {
        let difference = unzigzag(reader.number()?);
        u32::try_from(expected_slab(previous, column).checked_add(difference)?).ok()
    };
    if flags & SAME_SLABS != 0 {
        let slab = slab_of(0)?;
        places.iter_mut().for_each(|place| place.slab = slab);
    } else {
        for (column, place) in places.iter_mut().enumerate() {
            place.slab = slab_of(column)?;
        }
    }
    Some(Run { first_row, rows, places })
}

const ZERO: SlotPlace = SlotPlace { drive: 0, slab: 0, state: SlotState::Active };

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round_trip(width: usize, patch: &Patch) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_patch(&mut bytes, width, patch);
        let mut reader = Reader(&bytes);
        assert_eq!(take_patch(&mut reader, width).as_ref(), Some(patch));
        assert!(reader.0.is_empty());
        bytes
    }

    fn any_patch() -> impl Strategy<Value = (usize, Patch)> {
        let runs = prop::collection::vec(
            (0u64..4, 1u64..9, any::<[u32; 3]>(), any::<[u8; 3]>(), any::<bool>()),
            0..40,
        );
        (1usize..=3, 0u64..3, runs).prop_map(|(width, block, wishes)| {
            let from = block * ROWS_PER_BLOCK + 7;
            let mut at = from;
            let mut runs: Vec<Run> = Vec::new();
            for (gap, rows, slabs, states, alike) in wishes {
                let place = |column: usize| SlotPlace {
                    drive: column as u32 * 1000 + if alike { 0 } else { slabs[column] % 3 },
                    slab: slabs[if alike { 0 } else { column }] / 2,
                    state: if alike { SlotState::Active } else { state_of(states[column] % 4).unwrap() },
                };
                runs.push(Run { first_row: at + gap, rows, places: (0..width).map(place).collect() });
                at += gap + rows;
            }
            (width, Patch { from, to: at.max(from + 1), runs })
        })
    }

    #[test]
    fn runs_on_equal_drives_take_a_few_bytes() {
        let place = |drive| SlotPlace { drive, slab: 12, state: SlotState::Active };
        let run = Run { first_row: 0, rows: ROWS_PER_BLOCK, places: (0..60).map(place).collect() };
        let bytes = round_trip(60, &Patch { from: 0, to: ROWS_PER_BLOCK, runs: vec![run] });
        assert!(bytes.len() < 75, "{}", bytes.len());
    }

    #[test]
    fn the_bytes_are_as_described() {
        // docs/internals/format.md: a change of them changes the version.
        let at = |drive, slab, state| SlotPlace { drive, slab, state };
        let (active, rebuilding) = (SlotState::Active, SlotState::Rebuilding);
        let patch = Patch {
            from: 4096,
            to: 4396,
            runs: vec![
                Run {
                    first_row: 4096,
                    rows: 200,
                    places: [at(3, 5, active), at(300, 5, active)].into_iter().collect(),
                },
                Run {
                    first_row: 4298,
                    rows: 1,
                    places: [at(3, 205, active), at(300, 200, rebuilding)].into_iter().collect(),
                },
            ],
        };
        let expected = [128, 32, 172, 2, 2, 0, 200, 1, 6, 3, 172, 2, 10, 2, 1, 1, 0, 2, 0, 9];
        assert_eq!(round_trip(2, &patch), expected);
    }

    #[test]
    fn numbers_of_all_sizes_round_trip() {
        for number in [0, 1, 127, 128, 300, 1 << 35, u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put_number(&mut bytes, number);
            assert_eq!(Reader(&bytes).number(), Some(number));
            assert_eq!(Reader(&bytes[..bytes.len() - 1]).number(), None);
            assert_eq!(unzigzag(zigzag(number as i64)), number as i64);
        }
        assert_eq!(Reader(&[0xff; 9]).number(), None);
        assert_eq!(Reader(&[0xff; 11]).number(), None, "more than 64 bits");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn patches_round_trip((width, patch) in any_patch()) {
            round_trip(width, &patch);
        }

        #[test]
        fn damaged_patches_do_no_harm(
            (width, patch) in any_patch(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut bytes = Vec::new();
            put_patch(&mut bytes, width, &patch);
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Some(patch) = take_patch(&mut Reader(&bytes), width) {
                prop_assert_eq!(check_runs(&patch.runs, patch.from, patch.to, width), Ok(()));
            }
        }

        #[test]
        fn garbage_does_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..300), width in 0usize..256) {
            let _ = take_patch(&mut Reader(&bytes), width);
        }
    }
}
