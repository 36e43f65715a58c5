//! Speed of parity against memcpy and ISA-L, side by side in one run.
//!
//! Stripes of eight data units of 64 KiB with one, two and three parity units; once one stripe over
//! and over (it stays in the second-level cache), once cycling through more memory than any cache
//! holds. All contenders take turns on short samples of the same work, so that whatever else the
//! machine does falls on all of them; a round is several turns and gives medians; printed are the
//! median of the rounds and, in brackets, the lowest and highest round.
//!
//! GB/s are 10^9 bytes of *data* encoded (or copied) per second, on one core. `encode` writes
//! parity through the cache, `streaming` past it: the first is what counts in cache, the second out
//! of it.

mod arena;
mod isal;

use std::hint::black_box;
use std::time::Instant;

use arena::{Arena, STRIP_BYTES};
use isal::Isal;
use stripewise_parity::{Kernel, Recovery, encode, encode_streaming, kernel_name, kernels};

const DATA_UNITS: usize = 8;
const STRIPE_DATA_BYTES: usize = DATA_UNITS * STRIP_BYTES;
/// More than any third-level cache holds.
const OUT_OF_CACHE_BYTES: usize = 1536 << 20;
const ROUNDS: usize = 7;
const TURNS_PER_ROUND: usize = 40;
/// Stripes per sample, in cache and out of it: a fraction of a millisecond, so that few samples are
/// interrupted by whatever else runs.
const SAMPLE_STRIPES: [usize; 2] = [32, 8];

type Work<'a> = Box<dyn Fn(&mut Arena, usize) + 'a>;

struct Contender<'a> {
    name: String,
    /// Does its work on one stripe.
    work: Work<'a>,
}

fn main() {
    let isal = Isal::open();
    let names: Vec<&str> = kernels().iter().map(Kernel::name).collect();
    println!("# parity on one core of {}; kernel {} of {}", processor(), kernel_name(), names.join(", "));
    println!(
        "# 64 KiB strips; GB/s of data; median of {ROUNDS} rounds of {TURNS_PER_ROUND} turns (lowest..highest round)"
    );
    match &isal {
        Some(isal) => assert_same_code(isal),
        None => println!("# ISA-L is not installed (Debian: libisal2): no comparison with it"),
    }

    for parity_units in 1..=3 {
        compare(isal.as_ref(), parity_units, &mut Arena::new(2, DATA_UNITS + parity_units), "in-cache");
    }
    let available = available_memory_bytes();
    if available.is_some_and(|bytes| bytes < 2 * OUT_OF_CACHE_BYTES as u64) {
        println!(
            "# less than {} MiB of memory free: nothing measured out of cache",
            (2 * OUT_OF_CACHE_BYTES) >> 20
        );
    } else {
        for parity_units in 1..=3 {
            let units = DATA_UNITS + parity_units;
            let stripes = OUT_OF_CACHE_BYTES / (units * STRIP_BYTES);
            compare(isal.as_ref(), parity_units, &mut Arena::new(stripes, units), "out-of-cache");
        }
    }
    other_kernels();
    recoveries();
}

/// Our encoding, cached and streaming, against ISA-L and memcpy.
fn compare(isal: Option<&Isal>, parity_units: usize, arena: &mut Arena, place: &str) {
    let name = format!("8+{parity_units} {place}");
    let mut contenders = vec![
        contender("encode", |arena, stripe| {
            let (data, mut parity) = arena.split::<DATA_UNITS>(stripe);
            encode(black_box(&data), black_box(&mut parity));
        }),
        contender("streaming", |arena, stripe| {
            let (data, mut parity) = arena.split::<DATA_UNITS>(stripe);
            encode_streaming(black_box(&data), black_box(&mut parity));
        }),
        contender("memcpy", |arena, stripe| {
            // The copy is half a cycle ahead or behind, so that it is not in the cache for the next
            // in turn.
            let other = (stripe + arena.stripes() / 2) % arena.stripes();
            arena.copy(stripe, other, DATA_UNITS);
        }),
    ];
    if let Some(isal) = isal {
        let tables = isal.tables(DATA_UNITS, parity_units);
        contenders.push(contender("isal", move |arena, stripe| {
            let (data, mut parity) = arena.split::<DATA_UNITS>(stripe);
            isal.encode(&tables, black_box(&data), black_box(&mut parity));
        }));
    }
    let rounds = measure(&contenders, arena, if place == "in-cache" { 1 } else { arena.stripes() });

    for (at, contender) in contenders.iter().enumerate() {
        println!("bench parity {name} {}={} GB/s", contender.name, spread(&rounds, |round| round.speed[at]));
    }
    for (ours, label) in [(0, "encode"), (1, "streaming")] {
        println!("bench parity {name} {label}/memcpy={}", spread(&rounds, |round| round.ratio(ours, 2)));
        if isal.is_some() {
            println!("bench parity {name} {label}/isal={}", spread(&rounds, |round| round.ratio(ours, 3)));
        }
    }
    if isal.is_some() {
        // In cache parity is expected to be read again; out of it, it is on its way to a drive.
        let ours = if place == "in-cache" { 0 } else { 1 };
        let ratio = spread(&rounds, |round| round.ratio(ours, 3));
        let speed = median(rounds.iter().map(|round| round.speed[ours]).collect());
        println!("bench parity {name} ours/isal={ratio} {speed:.1} GB/s");
    }
}

/// The kernels in reach that are not the one in use, in cache.
fn other_kernels() {
    for parity_units in 1..=3 {
        let mut arena = Arena::new(1, DATA_UNITS + parity_units);
        let contenders: Vec<Contender> = kernels()
            .iter()
            .map(|kernel| {
                contender(kernel.name(), |arena, stripe| {
                    let (data, mut parity) = arena.split::<DATA_UNITS>(stripe);
                    kernel.encode(black_box(&data), black_box(&mut parity));
                })
            })
            .collect();
        let rounds = measure(&contenders, &mut arena, 1);
        for (at, contender) in contenders.iter().enumerate() {
            let speed = spread(&rounds, |round| round.speed[at]);
            println!("bench parity 8+{parity_units} in-cache kernel {}={speed} GB/s", contender.name);
        }
    }
}

/// Rebuilding data units, in cache. GB/s of data of the stripe, as in encoding, so that the two can
/// be compared.
fn recoveries() {
    for lost in 1..=3usize {
        let sources: Vec<usize> = (lost..DATA_UNITS + lost).collect();
        let wanted: Vec<usize> = (0..lost).collect();
        let recovery = Recovery::new(DATA_UNITS, &sources, &wanted).expect("as many parities as lost units");
        // The sources are where encoding has its data, what is rebuilt where it has its parity.
        let mut arena = Arena::new(1, DATA_UNITS + lost);
        let contenders: Vec<Contender> = kernels()
            .iter()
            .map(|kernel| {
                contender(kernel.name(), |arena, stripe| {
                    let (data, mut rebuilt) = arena.split::<DATA_UNITS>(stripe);
                    recovery.apply_with(kernel, black_box(&data), black_box(&mut rebuilt));
                })
            })
            .collect();
        let rounds = measure(&contenders, &mut arena, 1);
        for (at, contender) in contenders.iter().enumerate() {
            let speed = spread(&rounds, |round| round.speed[at]);
            println!(
                "bench parity 8+{lost} in-cache rebuild of {lost} kernel {}={speed} GB/s",
                contender.name
            );
        }
    }
}

fn contender<'a>(name: &str, work: impl Fn(&mut Arena, usize) + 'a) -> Contender<'a> {
    Contender { name: name.to_string(), work: Box::new(work) }
}

/// Medians over the turns of one round.
struct Round {
    /// Speed of each contender, in GB/s.
    speed: Vec<f64>,
    /// Speeds of all contenders in each turn.
    turns: Vec<Vec<f64>>,
}

impl Round {
    /// The median of how many times faster one contender was than another in the same turn.
    fn ratio(&self, one: usize, other: usize) -> f64 {
        median(self.turns.iter().map(|turn| turn[one] / turn[other]).collect())
    }
}

/// Lets all contenders take turns, over `cycle` stripes of the arena.
fn measure(contenders: &[Contender], arena: &mut Arena, cycle: usize) -> Vec<Round> {
    let in_cache = cycle == 1;
    let stripes_per_sample = if in_cache { SAMPLE_STRIPES[0] } else { SAMPLE_STRIPES[1] };
    let mut stripe = 0;
    let mut turn = |number: usize| -> Vec<f64> {
        let mut speeds = vec![0.0; contenders.len()];
        for at in order(number, contenders.len()) {
            let contender = &contenders[at];
            if in_cache {
                // A caller that came before may have written past the cache.
                (contender.work)(arena, stripe);
            }
            let start = Instant::now();
            for _ in 0..stripes_per_sample {
                (contender.work)(arena, stripe);
                stripe = (stripe + 1) % cycle;
            }
            let seconds = start.elapsed().as_secs_f64();
            speeds[at] = (stripes_per_sample * STRIPE_DATA_BYTES) as f64 / seconds / 1e9;
        }
        // Next time everybody gets other stripes.
        stripe = (stripe + 7) % cycle;
        speeds
    };
    turn(0);
    (0..ROUNDS)
        .map(|_| {
            let turns: Vec<Vec<f64>> = (0..TURNS_PER_ROUND).map(&mut turn).collect();
            let speed =
                (0..contenders.len()).map(|at| median(turns.iter().map(|turn| turn[at]).collect())).collect();
            Round { speed, turns }
        })
        .collect()
}

/// The order of the contenders: in zigzag, shifted by one each turn. With four contenders each one
/// comes equally often behind each other one, whose written but not yet stored lines it pays for.
fn order(turn: usize, contenders: usize) -> impl Iterator<Item = usize> {
    let zigzag = (0..contenders).map(move |at| if at % 2 == 0 { at / 2 } else { contenders - 1 - at / 2 });
    zigzag.map(move |at| (at + turn) % contenders)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn spread(rounds: &[Round], figure: impl Fn(&Round) -> f64) -> String {
    let values: Vec<f64> = rounds.iter().map(figure).collect();
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = values.iter().copied().fold(0.0, f64::max);
    format!("{:.2} ({lowest:.2}..{highest:.2})", median(values))
}

/// The comparison is of the same work: ISA-L's parity is ours, bit by bit.
fn assert_same_code(isal: &Isal) {
    for parity_units in 1..=3 {
        let mut arena = Arena::new(1, DATA_UNITS + parity_units);
        let tables = isal.tables(DATA_UNITS, parity_units);
        let (data, mut parity) = arena.split::<DATA_UNITS>(0);
        isal.encode(&tables, &data, &mut parity);
        let mut ours = vec![vec![0u8; STRIP_BYTES]; parity_units];
        encode(&data, &mut ours.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        for (row, unit) in ours.iter().enumerate() {
            assert!(arena.unit(0, DATA_UNITS + row) == unit, "8+{parity_units}: parity {row} is not ISA-L's");
        }
    }
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| std::env::consts::ARCH.to_string(), |(_, name)| name.to_string())
}

fn available_memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}
