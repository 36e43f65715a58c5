//! bonnie's method: one large file, written and read by characters and by blocks, rewritten, and
//! visited at random.
//!
//! After T. Bray's bonnie 1.4: blocks of 16 KiB, a rewrite that reads a block, changes it and
//! writes it back, 4000 seeks by three concurrent seekers, every tenth of which writes its block
//! back. "By characters" means one call per byte into a buffer of 4 KiB: that test measures the
//! processor, and its badge says so.

use serde::Deserialize;
use stripewise_drive::Context;

use super::{FileError, FileStore, FileWatch, Phase, proceed};
use crate::loads::workload::random_stream;
use crate::records::import::BONNIE_TESTS;
use crate::records::record::{MeasurementRecord, Operation, Unit};

/// Parameters of bonnie.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bonnie {
    /// Length of the file.
    pub file_bytes: u64,
    /// Number of seeks.
    pub seeks: u64,
    /// True to include making writes durable in their time (`-y`).
    pub sync: bool,
    /// Random seed.
    pub seed: u64,
}

impl Default for Bonnie {
    /// The parameters of study 001: 2030 MiB, `-y`.
    fn default() -> Self {
        Self { file_bytes: 2030 << 20, seeks: 4000, sync: true, seed: 1 }
    }
}

const BLOCK_BYTES: u64 = 16 << 10;
/// Buffer size of the C library.
const CHARACTERS_BYTES: u64 = 4 << 10;
const FILE: u64 = 0;
/// Number of concurrent seekers.
const SEEKERS: usize = 3;
/// Amounts between looks at the watch.
const PIECE_BYTES: u64 = 8 << 20;
const PIECE_SEEKS: usize = 200;

/// Runs bonnie once; returns the figures of bonnie's output line, rate and processor share.
///
/// # Errors
/// Those of the store, and an interrupt.
pub async fn run_bonnie<S: FileStore>(
    context: &Context,
    store: &S,
    asked: &Bonnie,
    cpu_seconds: &dyn Fn() -> Option<f64>,
    watch: &dyn FileWatch,
) -> Result<Vec<MeasurementRecord>, FileError<S::Error>> {
    let bytes = asked.file_bytes / BLOCK_BYTES * BLOCK_BYTES;
    let mut random = random_stream(asked.seed, 1);
    let mut figures = Vec::new();
    for (name, op) in BONNIE_TESTS {
        let phase = phase_of(name, bytes, asked.seeks);
        proceed(watch, phase, 0)?;
        let is_first_write = matches!(name, "per_char_write" | "block_write");
        if is_first_write {
            if name == "block_write" {
                store.delete(FILE).await?;
            }
            store.create(FILE).await?;
        }
        let (start_ns, cpu) = (context.now_ns(), cpu_seconds());
        match name {
            "per_char_write" => {
                for at in (0..bytes).step_by(CHARACTERS_BYTES as usize) {
                    proceed(watch, phase, at)?;
                    spend_on_characters(CHARACTERS_BYTES.min(bytes - at));
                    store.append(FILE, CHARACTERS_BYTES.min(bytes - at), CHARACTERS_BYTES).await?;
                }
            }
            "block_write" => {
                for at in (0..bytes).step_by(PIECE_BYTES as usize) {
                    proceed(watch, phase, at)?;
                    store.append(FILE, PIECE_BYTES.min(bytes - at), BLOCK_BYTES).await?;
                }
            }
            "rewrite" => {
                for at in (0..bytes).step_by(BLOCK_BYTES as usize) {
                    proceed(watch, phase, at)?;
                    store.visit(FILE, at, BLOCK_BYTES, true).await?;
                }
            }
            "per_char_read" => {
                for at in (0..bytes).step_by(CHARACTERS_BYTES as usize) {
                    proceed(watch, phase, at)?;
                    store.visit(FILE, at, CHARACTERS_BYTES.min(bytes - at), false).await?;
                    spend_on_characters(CHARACTERS_BYTES.min(bytes - at));
                }
            }
            "block_read" => {
                for at in (0..bytes).step_by(PIECE_BYTES as usize) {
                    proceed(watch, phase, at)?;
                    store.read(FILE, at, PIECE_BYTES.min(bytes - at), BLOCK_BYTES).await?;
                }
            }
            _ => {
                let blocks = (bytes / BLOCK_BYTES).max(1);
                let place = |seek: u64| (random.below(blocks) * BLOCK_BYTES, seek.is_multiple_of(10));
                let places: Vec<(u64, bool)> = (0..asked.seeks).map(place).collect();
                for (number, piece) in places.chunks(PIECE_SEEKS).enumerate() {
                    proceed(watch, phase, (number * PIECE_SEEKS) as u64)?;
                    store.visit_by(SEEKERS, FILE, piece, BLOCK_BYTES).await?;
                }
            }
        }
        if asked.sync && !matches!(op, Operation::Read) {
            store.sync().await?;
        }
        let seconds = ((context.now_ns() - start_ns) as f64 / 1e9).max(1e-9);
        let share = cpu.zip(cpu_seconds()).map(|(before, after)| 100.0 * (after - before) / seconds);
        push(&mut figures, name, op, (bytes, asked.seeks), seconds, share);
    }
    store.delete(FILE).await?;
    Ok(figures)
}

fn phase_of(test: &str, bytes: u64, seeks: u64) -> Phase {
    let of_bytes = |name| Phase { name, unit: "bytes", total: bytes };
    match test {
        "per_char_write" => of_bytes("writing by characters"),
        "block_write" => of_bytes("writing by blocks"),
        "rewrite" => of_bytes("rewriting"),
        "per_char_read" => of_bytes("reading by characters"),
        "block_read" => of_bytes("reading by blocks"),
        _ => Phase { name: "seeking", unit: "seeks", total: seeks },
    }
}

/// One call per byte that the compiler must keep, like `putc`.
fn spend_on_characters(count: u64) {
    for byte in 0..count {
        std::hint::black_box(byte as u8);
    }
}

fn push(
    figures: &mut Vec<MeasurementRecord>,
    name: &str,
    op: Operation,
    (bytes, seeks): (u64, u64),
    seconds: f64,
    cpu_percent: Option<f64>,
) {
    let mut figure = match op {
        Operation::Seek => MeasurementRecord::printed(name, op, Unit::PerSecond, seeks as f64 / seconds),
        _ => MeasurementRecord::printed(name, op, Unit::MbPerS, bytes as f64 / 1e6 / seconds),
    };
    if let Some(percent) = cpu_percent {
        let why = format!("{percent:.0} % of a core was used");
        figure.badge("not_processor_bound", if percent < 90.0 { Ok(()) } else { Err(why) });
    }
    figures.push(figure);
    figures.extend(
        cpu_percent
            .map(|percent| MeasurementRecord::printed(format!("{name}_cpu"), op, Unit::CpuPercent, percent)),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loads::files::{Extents, Unwatched};
    use crate::loads::target::DriveTarget;
    use crate::testing::SlowDrive;
    use stripewise_drive::{BufferPool, MemoryDrive};
    use stripewise_runtime::VirtualExecutor;

    #[test]
    fn bonnie_phases_move_the_stated_bytes() {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        // A request takes 0.1 ms at any length.
        let drive = SlowDrive::new(&context, MemoryDrive::new("memory", 16 << 20), 100_000);
        let files = Extents::new(DriveTarget::new(drive, BufferPool::new(1 << 20)));
        let asked = Bonnie { file_bytes: 8 << 20, seeks: 400, sync: true, seed: 1 };
        let figures = executor
            .block_on(run_bonnie(&context, &files, &asked, &|| None, &Unwatched))
            .expect("bonnie failed");
        let value = |name: &str| figures.iter().find(|figure| figure.name == name).expect(name).runs[0];
        let near = |name: &str, expected: f64| {
            let found = value(name);
            assert!((found / expected - 1.0).abs() < 0.03, "{name}: {found}, expected {expected}");
        };
        // 1 MiB a read except for the first, 2 MiB a write, and a flush.
        near("block_read", 8388.608 / 0.9);
        near("per_char_read", 8388.608 / 0.9);
        near("block_write", 8388.608 / 0.5);
        near("per_char_write", 8388.608 / 0.5);
        near("rewrite", 8388.608 / 1.4);
        near("seeks", 10_000.0 / 1.1);
        assert_eq!(figures.len(), 6, "no processor figures in virtual time");
    }
}
