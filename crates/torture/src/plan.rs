//! What a run is made of, drawn from its seed: drives, volumes, how the engine is set, how many lives.

use stripewise_drive::SplitMix64;
use stripewise_layout::{LayoutSpec, Level};

use crate::power::Latency;
use crate::subject::{NewVolume, Settings};
use crate::{Options, Promises};

const MIB: u64 = 1 << 20;
const LEVELS: [Level; 10] = [
    Level::Single,
    Level::Raid0,
    Level::Raid1,
    Level::Raid4,
    Level::Raid5,
    Level::Raid6,
    Level::Raid7,
    Level::Raid10,
    Level::Raid50,
    Level::Raid60,
];

/// The beginning of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Sizes of the data drives.
    pub data_bytes: Vec<u64>,
    /// Sizes of the spares.
    pub spare_bytes: Vec<u64>,
    /// Sizes of the drives for journals only.
    pub journal_bytes: Vec<u64>,
    /// Logical block of all drives.
    pub block_bytes: u32,
    /// Whether a power cut tears sectors.
    pub tears: bool,
    /// How long drives take.
    pub latency: Latency,
    /// Drives are queued in front of, as opposed to asked directly.
    pub queued: bool,
    /// How the pool is set.
    pub settings: Settings,
    /// Its volumes, as far as there is room for them.
    pub volumes: Vec<NewVolume>,
    /// What is promised of them.
    pub promises: Promises,
    /// Lives before the last, quiet one.
    pub lives: usize,
    /// Whether tasks run in an order drawn from the seed.
    pub shuffled: bool,
}

impl Plan {
    /// Drawn from `random`.
    pub fn draw(seed: u64, random: &mut SplitMix64, options: &Options) -> Self {
        let count = 2 + random.below(7) as usize;
        let data_bytes: Vec<u64> = (0..count).map(|_| (8 + random.below(57)) * MIB).collect();
        let largest = data_bytes.iter().copied().max().unwrap_or(64 * MIB);
        let spare_bytes = (0..random.below(3) / 2 + random.below(2)).map(|_| largest).collect();
        let journals = if random.chance(0.25) { 1 + random.below(3) } else { 0 };
        let journal_bytes = (0..journals).map(|_| (8 + random.below(25)) * MIB).collect();
        let block_bytes = if random.chance(0.25) { 4096 } else { 512 };
        let tears = random.chance(0.5);
        let features = options.features;
        // Now and then as pools were before there were checksums.
        let checksums = features.checksums && random.chance(0.85);
        let atomic_drives = block_bytes == 4096 && !tears;
        let promises = Promises {
            journal: features.journal,
            checksums,
            atomic_blocks: checksums || atomic_drives,
            atomic_drives,
        };
        let least_tolerance = match random.below(20) {
            0..=2 => 0,
            3..=14 => 1,
            _ => 2,
        };
        let volumes = (0..1 + random.below(3))
            .map(|number| draw_volume(random, count, least_tolerance, number))
            .collect();
        let least_ns = 1_000 + random.below(50_000);
        Self {
            data_bytes,
            spare_bytes,
            journal_bytes,
            block_bytes,
            tears,
            latency: Latency { least_ns, most_ns: least_ns * (2 + random.below(20)) },
            queued: random.chance(0.6),
            settings: Settings {
                seed,
                timeout_ns: (1 + random.below(4)) * 1_000_000_000,
                in_flight_bytes: (2 + random.below(32)) * MIB,
                slab_bytes: MIB << random.below(2),
                checksums,
                background_bytes: (1 + random.below(8)) * MIB,
                max_read_errors: 8 + random.below(57) as u32,
            },
            volumes,
            promises,
            lives: 2 + random.below(4) as usize,
            shuffled: random.chance(0.7),
        }
    }
}

/// A volume for a pool of so many drives, which can do without `tolerance` of them if that is possible.
pub fn draw_volume(random: &mut SplitMix64, drives: usize, tolerance: usize, number: u64) -> NewVolume {
    let mut layout = LayoutSpec { columns: Some(2), ..LayoutSpec::new(Level::Raid1) };
    for _ in 0..40 {
        let level = LEVELS[random.below(LEVELS.len() as u64) as usize];
        let tried = LayoutSpec {
            columns: Some(1 + random.below(drives as u64) as usize),
            interleave_bytes: Some(4096 << random.below(6)),
            ..LayoutSpec::new(level)
        };
        if tried.resolve(drives).is_ok_and(|shape| shape.fault_tolerance() >= tolerance) {
            layout = tried;
            break;
        }
    }
    NewVolume {
        name: format!("v{number}"),
        layout,
        size_bytes: (1 + random.below(6)) * MIB,
        write_back: random.chance(0.5),
        thin: random.chance(0.3),
    }
}
