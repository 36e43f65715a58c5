//! Plan of a run, drawn from its seed: drives, volumes, settings of the engine, number of lives.

use stripewise_array::tuning::{MapGrain, Tuning};
use stripewise_drive::SplitMix64;
use stripewise_layout::{LayoutSpec, Level};
use stripewise_pool::TierOptions;

use super::bias::{Bias, Span};
use super::manner::{Manner, draw_fast_drives};
use crate::power::Latency;
use crate::subject::{NewVolume, Settings};
use crate::{Options, Promises};

const MIB: u64 = 1 << 20;

/// The beginning of a run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Sizes of the data drives.
    pub data_bytes: Vec<u64>,
    /// Sizes of the spares.
    pub spare_bytes: Vec<u64>,
    /// Sizes of the drives for journals only.
    pub journal_bytes: Vec<u64>,
    /// Sizes of the fast drives.
    pub fast_bytes: Vec<u64>,
    /// Logical block of all drives.
    pub block_bytes: u32,
    /// True if a power cut tears sectors.
    pub tears: bool,
    /// Latency of the drives.
    pub latency: Latency,
    /// Drives are queued in front of, as opposed to asked directly.
    pub queued: bool,
    /// Bytes that drives claim to transfer in the time of one seek; 0: they do not seek.
    pub gap_bytes: u64,
    /// Settings of the pool.
    pub settings: Settings,
    /// Its volumes, as far as there is room for them.
    pub volumes: Vec<NewVolume>,
    /// Their promises.
    pub promises: Promises,
    /// Lives before the last, quiet one.
    pub lives: usize,
    /// Manner of these.
    pub manner: Manner,
    /// True if tasks run in an order drawn from the seed.
    pub shuffled: bool,
}

/// One in this many seeds has paired lives ([`Manner::is_paired`]), chosen by its remainder, so
/// that all other seeds draw what they drew before.
const PAIRED_ONE_OF: u64 = 20;
const PAIRED_LEAVE: u64 = 10;
/// The drives of one of ten seeds ask to be treated as if they had arms, in the same manner.
const ARMS_ONE_OF: u64 = 40;
const ARMS_LEAVE: [u64; 4] = [15, 17, 27, 29];
/// On such drives parity stays for some rows, as it does on disks.
fn on_arms(layout: LayoutSpec) -> LayoutSpec {
    let rotation_rows = layout.columns.filter(|_| layout.level.rotates_parity());
    LayoutSpec { rotation_rows: rotation_rows.map(|columns| 1 << (columns % 4)), ..layout }
}

/// Bytes that such drives claim to transfer in the time of one seek
/// ([`DriveInfo::gap_bytes`](stripewise_drive::DriveInfo)).
const GAP_OF_ARMS_BYTES: u64 = 128 << 10;

impl Plan {
    /// Drawn from `random`.
    pub(crate) fn draw(seed: u64, random: &mut SplitMix64, options: &Options) -> Self {
        let plan = Self::draw_first(seed, random, options);
        if options.drawn.has_tuning() { plan.and_later(seed, options) } else { plan }
    }

    /// A volume as it is made on the drives of this plan.
    pub(crate) fn on_its_drives(&self, new: NewVolume) -> NewVolume {
        if self.gap_bytes == 0 { new } else { NewVolume { layout: on_arms(new.layout), ..new } }
    }

    /// Number of slices that a volume is to have, drawn from a stream of its own.
    pub(crate) fn slices_of(&self, number: u32, options: &Options) -> u32 {
        let seed = self.settings.seed ^ 0x736c_6963_6573 ^ u64::from(number) << 48;
        let random = &mut SplitMix64::new(seed);
        let is_cut = options.drawn.has_slices() && random.chance(Bias::of(options.focus).slices);
        if is_cut { 1 + random.below(8) as u32 } else { 1 }
    }

    /// Draws the kinds of events that there always were.
    fn draw_first(seed: u64, random: &mut SplitMix64, options: &Options) -> Self {
        let bias = Bias::of(options.focus);
        let count = within(random, bias.drives) as usize;
        let data_bytes: Vec<u64> = (0..count).map(|_| within(random, bias.drive_mib) * MIB).collect();
        let largest = data_bytes.iter().copied().max().unwrap_or(64 * MIB);
        let spare_bytes = (0..random.below(3) / 2 + random.below(2)).map(|_| largest).collect();
        let journals = if random.chance(bias.journal_drives) { 1 + random.below(3) } else { 0 };
        let journal_bytes = (0..journals).map(|_| (8 + random.below(25)) * MIB).collect();
        let block_bytes = if random.chance(bias.large_blocks) { 4096 } else { 512 };
        let tears = random.chance(bias.tears);
        let features = options.features;
        // Now and then as pools were before there were checksums.
        let checksums = features.checksums && random.chance(bias.checksums);
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
        let least_tolerance = bias.tolerance.unwrap_or(least_tolerance);
        let volumes = (0..within(random, bias.volumes))
            .map(|number| draw_volume(random, bias, count, least_tolerance, number))
            .collect();
        let least_ns = 1_000 + random.below(50_000);
        Self {
            data_bytes,
            spare_bytes,
            journal_bytes,
            fast_bytes: Vec::new(),
            block_bytes,
            tears,
            latency: Latency { least_ns, most_ns: least_ns * (2 + random.below(20)) },
            queued: random.chance(0.6),
            gap_bytes: 0,
            settings: Settings {
                seed,
                timeout_ns: (1 + random.below(4)) * 1_000_000_000,
                in_flight_bytes: (2 + random.below(32)) * MIB,
                slab_bytes: MIB << random.below(2),
                checksums,
                background_bytes: (1 + random.below(8)) * MIB,
                max_read_errors: 8 + random.below(57) as u32,
                tuning: draw_tuning(seed, options),
                shards: 1,
                direct: false,
                tiers: TierOptions::default(),
            },
            volumes,
            promises,
            lives: 2 + random.below(4) as usize,
            manner: Manner::default(),
            shuffled: random.chance(0.7),
        }
    }

    /// With what came later.
    fn and_later(mut self, seed: u64, options: &Options) -> Self {
        let bias = Bias::of(options.focus);
        let random = &mut SplitMix64::new(seed ^ 0x6d61_6e6e_6572);
        self.manner = Manner::draw(random);
        if let Some(manner) = bias.manner {
            self.manner = manner;
        }
        self.fast_bytes = draw_fast_drives(random, bias.fast_drives);
        if !self.fast_bytes.is_empty() {
            // As fast as things happen.
            let quickness = if self.manner.is_long { 1000 } else { 1 };
            self.settings.tiers =
                TierOptions { period_ns: 3_000_000 * quickness, half_life_ns: 8_000_000 * quickness };
        }
        self.lives += 1 + random.below(2) as usize;
        if self.manner.is_often {
            self.lives = 8 + random.below(8) as usize;
        }
        if bias.arms || ARMS_LEAVE.contains(&(seed % ARMS_ONE_OF)) {
            self.gap_bytes = GAP_OF_ARMS_BYTES;
            self.volumes.iter_mut().for_each(|volume| volume.layout = on_arms(volume.layout));
        }
        if self.manner.is_paired || (options.focus.is_none() && seed % PAIRED_ONE_OF == PAIRED_LEAVE) {
            self.manner = Manner::PAIRED;
            self.lives = 9;
            let tuning = &mut self.settings.tuning;
            // A page for each region, and records that are soon released.
            tuning.map_grain = MapGrain { regions_per_chunk: 1, regions_per_page: 1 };
            (tuning.gather_hold_ns, tuning.destage_hold_ns) = (2_000_000, 2_000_000);
        }
        if self.manner.is_crowded {
            // Work that many wait for is not cut into thousands of requests.
            self.settings.tuning.zero_write_bytes = Tuning::default().zero_write_bytes;
            for volume in &mut self.volumes {
                volume.write_back = true;
                volume.size_bytes = volume.size_bytes.max(4 * MIB);
            }
        }
        if let Some(lives) = bias.lives {
            self.lives = within(random, lives) as usize;
        }
        if let Some(tune) = bias.tune {
            tune(&mut self.settings.tuning);
        }
        if options.drawn.has_shards() && options.focus.is_none() {
            self.settings.shards = 1 + SplitMix64::new(seed ^ 0x7368_6172_6473).below(3) as usize;
        }
        if options.drawn.has_shards() {
            self.settings.tuning.first_number = draw_first_number(seed);
        }
        if options.drawn.has_direct() {
            self.settings.direct = SplitMix64::new(seed ^ 0x6469_7265_6374).chance(bias.direct);
        }
        if options.drawn.has_slices() {
            let log2 = SplitMix64::new(seed ^ 0x65_7874_656e_7473).below(9);
            self.settings.tuning.slice_extent_bytes = 4096 << log2;
        }
        self
    }
}

/// Small times and sizes for most runs, so that what takes minutes and gigabytes on real drives
/// happens within a run; each of its own, so that no two of them always meet. From a stream of its
/// own.
fn draw_tuning(seed: u64, options: &Options) -> Tuning {
    let random = &mut SplitMix64::new(seed ^ 0x7475_6e69_6e67);
    let usual = Tuning::default();
    if !options.drawn.has_tuning() || (random.chance(0.2) && options.focus.is_none()) {
        return usual;
    }
    let mut ns = |usual_ns: u64| match random.below(4) {
        0 => usual_ns,
        1 => 20_000_000 + random.below(80_000_000),
        _ => 2_000_000 + random.below(4_000_000),
    };
    let tuning = Tuning {
        intent_clear_interval_ns: ns(usual.intent_clear_interval_ns),
        gather_hold_ns: ns(usual.gather_hold_ns),
        destage_hold_ns: ns(usual.destage_hold_ns),
        thin_patience_ns: ns(usual.thin_patience_ns),
        rebuild_checkpoint_ns: ns(usual.rebuild_checkpoint_ns),
        scrub_checkpoint_ns: ns(usual.scrub_checkpoint_ns),
        convert_record_ns: ns(usual.convert_record_ns),
        ..usual
    };
    let mut count = |usual: u64, least: u64, more: u64| match random.below(4) {
        0 => usual,
        _ => least + random.below(more),
    };
    let tuning = Tuning {
        partial_regions: count(2048, 2, 4) as usize,
        destage_stripes: count(64, 2, 3) as usize,
        pending_bytes: count(64 << 20, 256 << 10, 1 << 20),
        journal_batch_bytes: count(1 << 20, 8 << 10, 64 << 10),
        journal_batch_notes: count(320, 1, 8) as usize,
        zero_write_bytes: count(256, 1, 16) * 4096,
        mirror_zone_bytes: count(256, 1, 32) * 4096,
        mirror_run_bytes: 64 << 10,
        merged_segments: count(512, 2, 8) as usize,
        checksum_cache_bytes: count(256 << 20, 32 << 10, 32 << 10) as usize,
        checksum_window_pages: count(256, 1, 4) as usize,
        known_bad_blocks: count(65_536, 1, 8) as usize,
        begun_regions: count(4096, 1, 4) as usize,
        commit_piece_bytes: count(256, 1, 3) as usize * 4096,
        thin_rows: count(16, 1, 3),
        released_rows: count(16, 1, 3),
        rebuild_rows: count(64, 1, 3),
        rebuild_look_ahead: count(128, 1, 4) as usize,
        drain_batch_bytes: count(4 << 10, 1, 4) * MIB,
        convert_window_bytes: count(64, 1, 8) * (64 << 10),
        convert_piece_bytes: count(16, 1, 2) * (64 << 10),
        convert_unrecorded_bytes: count(256 << 20, 64 << 10, 2 << 20),
        ..tuning
    };
    let regions_per_chunk = count(64, 1, 3);
    let map_grain = match count(MapGrain::MOST_REGIONS_PER_PAGE, 1, 4) {
        MapGrain::MOST_REGIONS_PER_PAGE => MapGrain { regions_per_chunk: 64, ..MapGrain::default() },
        chunks => MapGrain { regions_per_chunk, regions_per_page: regions_per_chunk * chunks },
    };
    let rebuild_batch_bytes = count(256, 1, 4) * MIB;
    Tuning { map_grain, rebuild_batch_bytes, ..tuning }
}

/// Number after which counters start: in three of ten seeds a few below 2³², so that they pass it
/// within a run, some in the first life and some in a later one.
fn draw_first_number(seed: u64) -> u64 {
    let random = &mut SplitMix64::new(seed ^ 0x6e75_6d62_6572);
    if random.chance(0.7) {
        return 0;
    }
    let most = [2, 8, 32, 128][random.below(4) as usize];
    (1 << 32) - 1 - random.below(most)
}

/// A number of a span.
pub(crate) fn within(random: &mut SplitMix64, (least, count): Span) -> u64 {
    least + random.below(count)
}

/// Draws a volume for a pool of `drives` drives, which tolerates the loss of `tolerance` of them if
/// that is possible.
pub(crate) fn draw_volume(
    random: &mut SplitMix64,
    bias: &Bias,
    drives: usize,
    tolerance: usize,
    number: u64,
) -> NewVolume {
    let mut layout = LayoutSpec { columns: Some(2), ..LayoutSpec::new(Level::Raid1) };
    for _ in 0..40 {
        let level = bias.levels[random.below(bias.levels.len() as u64) as usize];
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
        size_bytes: within(random, bias.volume_mib) * MIB,
        write_back: random.chance(bias.write_back),
        thin: random.chance(bias.thin),
        slices: 1,
    }
}
