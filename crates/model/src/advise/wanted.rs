//! Requirements on an array.
//!
//! Expected faults: shares above 100 percent, unknown words; the error lists the valid ones.

use stripewise_layout::LayoutSpec;

use super::drives::Kind;
use super::{AdviceError, Prices};
use crate::names::nearest;
use crate::predict::Workload;
use crate::reliability::BitErrors;

const KIB: u64 = 1 << 10;

/// Drives at hand and wishes.
#[derive(Clone, Debug)]
pub struct Need {
    /// Kinds of drives, each with its number.
    pub drives: Vec<Kind>,
    /// True if these drives are for sale, any number up to the given one; false if they exist, and
    /// all are used.
    pub buy: bool,
    /// Solid-state drives that may hold a journal.
    pub journal: Option<Kind>,
    /// The controller or software.
    pub controller: String,
    /// Number of controllers available.
    pub controllers: usize,
    /// Number of drive bays.
    pub bays: Option<usize>,
    /// Prices by name of the drive.
    pub prices: Prices,
    /// Budget for all drives.
    pub budget: Option<f64>,
    /// Usable capacity in bytes.
    pub capacity_bytes: Option<u64>,
    /// Purpose of the array.
    pub workload: Use,
    /// Link between array and client.
    pub link: Option<Link>,
    /// Probability of a loss within a year that is accepted.
    pub risk_per_year: f64,
    /// Spare drives of those given.
    pub spares: usize,
    /// Share of the normal rate that must be left while a drive is rebuilt.
    pub rebuild_noise: Option<f64>,
    /// One more layout to consider, which would be left out.
    pub include: Option<LayoutSpec>,
    /// Unrecoverable read errors of the data sheet, in place of latent errors found in the field.
    pub bit_errors: Option<BitErrors>,
    /// Random seed.
    pub seed: u64,
}

impl Need {
    /// True if more capacity counts: the work fills it, or no capacity was asked for.
    pub(super) fn prefers_capacity(&self) -> bool {
        self.capacity_bytes.is_none() || self.workload.is_for_capacity()
    }

    /// True if raw capacity stands for the price: a capacity is wanted, drives are for sale, and no
    /// prices are known.
    pub(super) fn counts_raw_capacity(&self) -> bool {
        self.buy && self.prices.is_empty() && self.capacity_bytes.is_some()
    }

    /// Price limit that a candidate of this price does not meet.
    pub(super) fn exceeded_budget(&self, cost: Option<f64>) -> Option<f64> {
        self.budget.filter(|budget| cost.is_some_and(|cost| cost > *budget))
    }

    /// Drives and nothing else.
    pub fn of(drives: Vec<Kind>, workload: Use) -> Self {
        Self {
            drives,
            buy: false,
            journal: None,
            controller: "stripewise".to_owned(),
            controllers: 1,
            bays: None,
            prices: Prices::new(),
            budget: None,
            capacity_bytes: None,
            workload,
            link: None,
            risk_per_year: 1e-3,
            bit_errors: None,
            spares: 0,
            rebuild_noise: None,
            include: None,
            seed: 1,
        }
    }
}

/// Purpose of an array.
#[derive(Clone, Debug, PartialEq)]
pub struct Use {
    /// As typed.
    pub name: String,
    /// Loads whose rates count, by their geometric mean.
    pub loads: Vec<Workload>,
}

impl Use {
    /// True for work that fills what there is: more room counts, not fewer drives.
    pub(super) fn is_for_capacity(&self) -> bool {
        ["backup", "archive", "media"].contains(&self.name.as_str())
    }
}

/// A link to the client that limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// As typed.
    pub name: String,
    /// Payload in each direction.
    pub mb_per_s: f64,
}

impl Link {
    /// True if an enclosure of several drives behind it takes one command at a time.
    pub(super) fn is_usb(&self) -> bool {
        self.name.starts_with("usb3")
    }
}

/// Links by name: line rate less framing.
const LINKS: [(&str, f64); 9] = [
    ("1gbe", 118.0),
    ("2.5gbe", 295.0),
    ("5gbe", 590.0),
    ("10gbe", 1180.0),
    ("25gbe", 2950.0),
    ("40gbe", 4720.0),
    ("100gbe", 11_800.0),
    ("usb3", 235.0),
    ("usb3-10g", 950.0),
];

/// Reads a link: a name, or a rate such as `400MB/s`.
pub fn parse_link(text: &str) -> Result<Link, AdviceError> {
    let name = text.trim().to_ascii_lowercase();
    let known = LINKS.iter().find(|(known, _)| *known == name).map(|(_, rate)| *rate);
    let rate = name.strip_suffix("mb/s").and_then(|number| number.trim().parse::<f64>().ok());
    match known.or(rate.filter(|rate| rate.is_finite() && *rate > 0.0)) {
        Some(mb_per_s) => Ok(Link { name, mb_per_s }),
        None => Err(AdviceError::Wish {
            what: format!("there is no link `{text}`"),
            hint: format!("one of {}, or a rate such as 400MB/s", LINKS.map(|link| link.0).join(", ")),
        }),
    }
}

pub(super) fn links() -> impl Iterator<Item = Link> {
    LINKS.into_iter().map(|(name, mb_per_s)| Link { name: name.to_owned(), mb_per_s })
}

/// The three loads that every choice is predicted for: study 004's.
pub(super) fn sequential(read: bool) -> Workload {
    Workload::simple(read, false, KIB << 10, 64)
}

pub(super) fn mixed() -> Workload {
    Workload {
        read_share: 0.5,
        random_share: 1.0,
        blocks: vec![(4 * KIB, 20.0), (64 * KIB, 50.0), (256 * KIB, 20.0), (2 << 20, 10.0)],
        depth: 64,
        workers: 8,
        span_bytes: None,
        repeats: false,
    }
}

/// Streams of media that are read at once.
const MEDIA_STREAMS: usize = 8;

const WORDS: [&str; 6] = ["sequential", "random", "mixed", "backup", "archive", "media"];

/// Reads a workload: a word, or shares such as `read=70,random=100,block=4KiB,depth=32`.
pub fn parse_use(text: &str) -> Result<Use, AdviceError> {
    let name = text.trim().to_ascii_lowercase();
    let loads = match name.as_str() {
        "sequential" => vec![sequential(false), sequential(true)],
        "random" => {
            vec![Workload { depth: 32, read_share: 0.5, ..Workload::simple(true, true, 4 * KIB, 32) }]
        }
        "mixed" | "toshiba" => vec![mixed()],
        "backup" => vec![sequential(false)],
        "archive" => vec![sequential(true)],
        "media" => vec![Workload { depth: 4, workers: MEDIA_STREAMS, ..sequential(true) }],
        shares if shares.contains('=') => vec![parse_shares(shares)?],
        other => {
            let near = nearest(other, WORDS);
            let near =
                if near.is_empty() { String::new() } else { format!(" (nearest: {})", near.join(", ")) };
            return Err(AdviceError::Wish {
                what: format!("there is no workload `{text}`{near}"),
                hint: format!(
                    "one of {}, or shares: read=70,random=100,block=4KiB,depth=32",
                    WORDS.join(", ")
                ),
            });
        }
    };
    Ok(Use { name, loads })
}

fn parse_shares(text: &str) -> Result<Workload, AdviceError> {
    let wish = |what: String| AdviceError::Wish {
        what,
        hint: "shares are percents from 0 to 100, as in read=70,random=100,block=4KiB,depth=32".to_owned(),
    };
    let mut load = Workload::simple(true, true, 64 * KIB, 32);
    let (mut reads, mut writes, mut random, mut sequential) = (None, None, None, None);
    for part in text.split(',') {
        let (key, value) = part.split_once('=').ok_or_else(|| wish(format!("`{part}` has no value")))?;
        let number = |value: &str| value.trim().trim_end_matches('%').parse::<f64>().ok();
        let percent = || match number(value) {
            Some(share) if (0.0..=100.0).contains(&share) => Ok(Some(share)),
            _ => Err(wish(format!("`{part}` is not a percentage (0–100)"))),
        };
        match key.trim() {
            "read" => reads = percent()?,
            "write" => writes = percent()?,
            "random" => random = percent()?,
            "sequential" => sequential = percent()?,
            "depth" => match number(value) {
                Some(depth) if (1.0..=4096.0).contains(&depth) => load.depth = depth as usize,
                _ => return Err(wish(format!("`{part}` is not a queue depth (1 to 4096)"))),
            },
            "block" => match block_bytes(value) {
                Some(bytes) => load.blocks = vec![(bytes, 1.0)],
                None => return Err(wish(format!("`{part}` is not a block size (512 to 16MiB)"))),
            },
            other => return Err(wish(format!("unknown share `{other}`"))),
        }
    }
    let share = |one: Option<f64>, other: Option<f64>, names: &str| match (one, other) {
        (Some(one), Some(other)) if (one + other - 100.0).abs() > 1e-6 => {
            Err(wish(format!("{names} add up to {} %, not to 100 %", one + other)))
        }
        (Some(one), _) => Ok(one / 100.0),
        (None, Some(other)) => Ok(1.0 - other / 100.0),
        (None, None) => Ok(0.5),
    };
    load.read_share = share(reads, writes, "reads and writes")?;
    load.random_share = share(random, sequential, "random and sequential")?;
    Ok(load)
}

fn block_bytes(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let text = text.trim_end_matches('b').trim_end_matches('i');
    let (number, unit) = match text.char_indices().last()? {
        (at, 'k') => (&text[..at], KIB),
        (at, 'm') => (&text[..at], KIB << 10),
        _ => (text, 1),
    };
    let bytes = number.parse::<u64>().ok()?.checked_mul(unit)?;
    (512..=16 << 20).contains(&bytes).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_are_parsed_from_words_and_shares() {
        assert_eq!(parse_use("sequential").unwrap().loads.len(), 2);
        let load = &parse_use("read=70,random=100,block=4KiB,depth=8").unwrap().loads[0];
        assert_eq!((load.read_share, load.random_share, load.depth), (0.7, 1.0, 8));
        assert_eq!(load.blocks, [(4096, 1.0)]);
        assert_eq!(parse_use("write=30").unwrap().loads[0].read_share, 0.7);
        assert_eq!(parse_link("10GbE").unwrap().mb_per_s, 1180.0);
        assert_eq!(parse_link("400MB/s").unwrap().mb_per_s, 400.0);
    }

    #[test]
    fn shares_above_100_percent_are_refused() {
        let refused = |text: &str| parse_use(text).unwrap_err().to_string();
        assert!(refused("read=70,write=50").contains("add up to 120 %"));
        assert!(refused("random=90,sequential=20").contains("add up to 110 %"));
        for text in ["read=170", "read=-1", "depth=0", "block=1", "block=x", "speed=5", "=", "read"] {
            assert!(parse_use(text).is_err(), "{text}");
        }
        assert!(refused("sequental").contains("sequential"));
        assert!(parse_link("3gbe").unwrap_err().hint().contains("2.5gbe"));
        assert!(parse_link("-5MB/s").is_err());
    }
}
