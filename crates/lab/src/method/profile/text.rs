//! Profile files: their keys, expansion of lists, and error messages.
//!
//! Expects user-written files: unknown keys are reported with the nearest valid key; also sizes
//! with unknown units, and lists that give no measurement or far too many.

use serde::Deserialize;

use super::{FileMethod, Profile, ProfileError, Statistic, Step};
use crate::loads::contents::Data;
use crate::loads::files::{Bonnie, PostMark};
use crate::loads::workload::{Access, Arrival, BlockShare, Pattern, Region, Workload};
use crate::records::record::Operation;

/// Maximum number of measurements; more are a mistake in the profile.
const MOST_STEPS: usize = 2000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Order {
    /// All reads, then all writes.
    #[default]
    ReadsFirst,
    /// Each measurement writes, then reads.
    WritesFirst,
    /// Order of the file.
    AsGiven,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    name: String,
    #[serde(default)]
    tool: String,
    #[serde(default)]
    about: String,
    #[serde(default = "six")]
    runs: u32,
    #[serde(default)]
    discard_first: bool,
    #[serde(default)]
    statistic: Statistic,
    #[serde(default)]
    also_best: bool,
    #[serde(default = "five")]
    seconds: f64,
    #[serde(default)]
    pause_seconds: f64,
    #[serde(default)]
    sizes: Vec<String>,
    #[serde(default)]
    order: Order,
    bytes_per_measurement: Option<String>,
    #[serde(default)]
    precondition_passes: u32,
    #[serde(default)]
    verify: bool,
    data: Option<String>,
    #[serde(rename = "measurement", default)]
    measurements: Vec<Entry>,
    postmark: Option<PostMark>,
    bonnie: Option<Bonnie>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    #[serde(default)]
    ops: Vec<Side>,
    #[serde(default)]
    read_percents: Vec<u32>,
    #[serde(default)]
    random_percents: Vec<u32>,
    pattern: Option<String>,
    #[serde(default)]
    patterns: Vec<String>,
    #[serde(default)]
    blocks: Vec<String>,
    split: Option<String>,
    #[serde(default)]
    depths: Vec<u32>,
    #[serde(default)]
    workers: Vec<u32>,
    #[serde(default)]
    think_us: u64,
    #[serde(default)]
    flush_every: u32,
    #[serde(default)]
    fua_every: u32,
    arrival: Option<String>,
    most_requests: Option<u64>,
    most_bytes: Option<String>,
    offset: Option<String>,
    working_set: Option<String>,
    #[serde(default)]
    accesses: Vec<Line>,
    beside: Option<Beside>,
}

/// A line of an access specification.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    share: u32,
    block: String,
    #[serde(default = "a_hundred")]
    read_percent: u32,
    #[serde(default = "a_hundred")]
    random_percent: u32,
}

/// A load concurrent with the measurement's own.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Beside {
    name: String,
    pattern: String,
    block: String,
    depths: Vec<u32>,
    #[serde(default = "a_hundred")]
    read_percent: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Side {
    Read,
    Write,
    Discard,
}

/// Operation of requests: a percentage of reads; the others write or discard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Sides {
    reads: u32,
    discards: bool,
}

fn six() -> u32 {
    6
}
fn a_hundred() -> u32 {
    100
}
fn five() -> f64 {
    5.0
}

impl Profile {
    /// Parses a profile file.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        let text: Text = toml::from_str(text).map_err(|error| ProfileError::Wrong(explain(&error)))?;
        let wrong = |why: String| ProfileError::Wrong(format!("{}: {why}", text.name));
        if text.runs == 0 || !text.seconds.is_finite() || text.seconds <= 0.0 {
            return Err(wrong("runs and seconds must be more than 0".into()));
        }
        let sizes =
            text.sizes.iter().map(|size| parse_bytes(size)).collect::<Result<_, _>>().map_err(wrong)?;
        let mut steps = Vec::new();
        for entry in &text.measurements {
            expand(entry, text.order, &mut steps).map_err(wrong)?;
            if steps.len() > MOST_STEPS {
                return Err(wrong(format!("its lists give more than {MOST_STEPS} measurements")));
            }
        }
        let files = match (text.postmark, text.bonnie) {
            (None, None) => None,
            (Some(asked), None) => Some(FileMethod::PostMark(asked)),
            (None, Some(asked)) => Some(FileMethod::Bonnie(asked)),
            _ => return Err(wrong("use either postmark or bonnie, not both".into())),
        };
        if steps.is_empty() == files.is_none() {
            return Err(wrong("use either measurements, or postmark or bonnie".into()));
        }
        if let Some(FileMethod::PostMark(asked)) = &files {
            asked.check().map_err(wrong)?;
        }
        if text.order == Order::ReadsFirst {
            steps.sort_by_key(|step: &Step| matches!(step.op, Operation::Write | Operation::Discard));
        }
        let mut names: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(wrong(format!("two measurements are called `{}`", twice[0])));
        }
        let data = text.data.as_deref().map_or(Ok(Data::Unique), parse_data).map_err(wrong)?;
        let moves_size_once = match text.bytes_per_measurement.as_deref() {
            None => false,
            Some("size") => true,
            Some(other) => {
                return Err(wrong(format!("bytes_per_measurement must be \"size\", not \"{other}\"")));
            }
        };
        Ok(Self {
            name: text.name,
            tool: text.tool,
            about: text.about,
            runs: text.runs,
            discard_first: text.discard_first,
            statistic: text.statistic,
            also_best: text.also_best,
            seconds: text.seconds,
            pause_seconds: text.pause_seconds.max(0.0),
            sizes,
            moves_size_once,
            precondition_passes: text.precondition_passes,
            data,
            verify: text.verify,
            steps,
            files,
        })
    }
}

/// Adds all combinations of an entry's lists.
fn expand(entry: &Entry, order: Order, steps: &mut Vec<Step>) -> Result<(), String> {
    let or = |list: &[u32], default: u32| if list.is_empty() { vec![default] } else { list.to_vec() };
    let of_share = |reads: &u32| Sides { reads: *reads, discards: false };
    let mut sides: Vec<Sides> = entry.read_percents.iter().map(of_share).collect();
    let of_side = |side: &Side| Sides {
        reads: if *side == Side::Read { 100 } else { 0 },
        discards: *side == Side::Discard,
    };
    sides.extend(entry.ops.iter().map(of_side));
    if sides.is_empty() && !entry.accesses.is_empty() {
        sides.push(Sides { reads: 50, discards: false });
    }
    if sides.is_empty() {
        return Err(format!("measurement `{}` has neither ops nor read_percents", entry.name));
    }
    let beside = entry.beside.iter().map(|beside| &beside.read_percent);
    let shares = entry.read_percents.iter().chain(&entry.random_percents).chain(beside);
    if let Some(share) = shares.into_iter().find(|share| **share > 100) {
        return Err(format!("measurement `{}`: {share} is not a percentage (0–100)", entry.name));
    }
    let like = likeness(entry)?;
    let blocks: Vec<Vec<BlockShare>> = match (&entry.split, entry.blocks.as_slice()) {
        (Some(split), []) => vec![parse_split(split)?],
        (None, [_, ..]) => {
            let one = |text: &String| parse_bytes(text).map(|bytes| vec![BlockShare { bytes, share: 100 }]);
            entry.blocks.iter().map(one).collect::<Result<_, _>>()?
        }
        (None, []) if !like.accesses.is_empty() => vec![like.split()],
        _ => return Err(format!("measurement `{}` needs either blocks, split or accesses", entry.name)),
    };
    let patterns = if like.accesses.is_empty() { patterns(entry)? } else { vec![Pattern::Partly(0)] };
    let depths = or(&entry.depths, 1);
    let workers = or(&entry.workers, 1);
    let others = entry.beside.as_ref().map_or(vec![0], |beside| beside.depths.clone());
    let count = patterns.len() * blocks.len() * depths.len() * workers.len() * sides.len() * others.len();
    if count > MOST_STEPS {
        return Err(format!("measurement `{}` stands for {count} measurements", entry.name));
    }
    if order == Order::WritesFirst {
        sides.sort_unstable();
    }
    for pattern in &patterns {
        for block in &blocks {
            for &depth in &depths {
                for &jobs in &workers {
                    for &sides in &sides {
                        let own = step(entry, &like, *pattern, block, (depth, jobs), sides);
                        match &entry.beside {
                            None => steps.push(own),
                            Some(beside) => with_others(own, beside, steps)?,
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

/// Workload settings shared by all measurements of an entry.
fn likeness(entry: &Entry) -> Result<Workload, String> {
    let line = |line: &Line| {
        let (share, read_percent, random_percent) = (line.share, line.read_percent, line.random_percent);
        parse_bytes(&line.block).map(|bytes| Access { share, bytes, read_percent, random_percent })
    };
    Ok(Workload {
        think_us: entry.think_us,
        flush_every: entry.flush_every,
        fua_every: entry.fua_every,
        arrival: entry.arrival.as_deref().map_or(Ok(Arrival::Closed), parse_arrival)?,
        most_requests: entry.most_requests,
        most_bytes: entry.most_bytes.as_deref().map(parse_bytes).transpose()?,
        accesses: entry.accesses.iter().map(line).collect::<Result<_, _>>()?,
        region: region(entry)?,
        ..Workload::plain("", Pattern::Random, 4096, 1.0, 1)
    })
}

/// Region of an entry within the used part; without a length it extends to the end.
fn region(entry: &Entry) -> Result<Option<Region>, String> {
    let offset_bytes = match entry.offset.as_deref() {
        None | Some("0") => 0,
        Some(text) => parse_bytes(text)?,
    };
    let length_bytes = entry.working_set.as_deref().map_or(Ok(u64::MAX), parse_bytes)?;
    let is_part = offset_bytes > 0 || length_bytes < u64::MAX;
    Ok(is_part.then_some(Region { offset_bytes, length_bytes }))
}

fn step(
    entry: &Entry,
    like: &Workload,
    pattern: Pattern,
    blocks: &[BlockShare],
    (depth, jobs): (u32, u32),
    Sides { reads, discards }: Sides,
) -> Step {
    let op = match reads {
        _ if discards => Operation::Discard,
        _ if !like.accesses.is_empty() => Operation::Mixed,
        0 => Operation::Write,
        100 => Operation::Read,
        _ => Operation::Mixed,
    };
    let random = match pattern {
        Pattern::Partly(percent) => percent,
        Pattern::Sequential | Pattern::Strided(_) => 0,
        _ => 100,
    };
    let name = entry.name.replace("{block}", &size_text(blocks[0].bytes));
    let name = name.replace("{pattern}", &pattern.text()).replace("{depth}", &depth.to_string());
    let name = name.replace("{reads}", &reads.to_string()).replace("{random}", &random.to_string());
    let side = match op {
        Operation::Read if entry.ops.len() > 1 => "_read",
        Operation::Write if entry.ops.len() > 1 => "_write",
        Operation::Discard if entry.ops.len() > 1 => "_discard",
        _ => "",
    };
    let name = name.replace("{workers}", &jobs.to_string()) + side;
    let workload = Workload {
        name: name.clone(),
        pattern,
        blocks: blocks.to_vec(),
        read_share: f64::from(reads) / 100.0,
        depth,
        jobs,
        discards,
        ..like.clone()
    };
    Step { name, op, workload, beside: None }
}

/// Adds a step for each depth of the concurrent load; combinations without requests in flight are
/// left out.
fn with_others(own: Step, beside: &Beside, steps: &mut Vec<Step>) -> Result<(), String> {
    let (pattern, bytes) = (parse_pattern(&beside.pattern)?, parse_bytes(&beside.block)?);
    for &depth in beside.depths.iter().filter(|depth| **depth + own.workload.depth > 0) {
        let name = own.name.replace("{beside}", &depth.to_string());
        let reads = f64::from(beside.read_percent) / 100.0;
        let other = Workload::plain(&format!("{name}, {}", beside.name), pattern, bytes, reads, depth);
        let workload = Workload { name: name.clone(), ..own.workload.clone() };
        steps.push(Step { name, op: own.op, workload, beside: Some(other) });
    }
    Ok(())
}

fn patterns(entry: &Entry) -> Result<Vec<Pattern>, String> {
    let mut names: Vec<&str> = entry.patterns.iter().map(String::as_str).collect();
    names.extend(entry.pattern.as_deref());
    let mut patterns = names.into_iter().map(parse_pattern).collect::<Result<Vec<_>, _>>()?;
    patterns.extend(entry.random_percents.iter().map(|percent| match percent {
        0 => Pattern::Sequential,
        100 => Pattern::Random,
        other => Pattern::Partly(*other),
    }));
    match patterns.is_empty() {
        true => Err(format!("measurement `{}` has neither pattern nor random_percents", entry.name)),
        false => Ok(patterns),
    }
}

/// Parses `sequential`, `random`, `strided:1MiB`, `zipf:1.2`, `hot:80/20`.
fn parse_pattern(text: &str) -> Result<Pattern, String> {
    let wrong = || {
        format!("`{text}` is not a pattern; write sequential, random, strided:1MiB, zipf:1.2 or hot:80/20")
    };
    match text.split_once(':') {
        None if text == "sequential" => Ok(Pattern::Sequential),
        None if text == "random" => Ok(Pattern::Random),
        Some(("strided", stride)) => parse_bytes(stride).map(Pattern::Strided),
        Some(("zipf", theta)) => {
            let theta = theta.parse::<f64>().ok().filter(|theta| (0.01..=10.0).contains(theta));
            theta.map(|theta| Pattern::Zipf((theta * 100.0).round() as u32)).ok_or_else(wrong)
        }
        Some(("hot", shares)) => {
            let (requests, region) = shares.split_once('/').ok_or_else(wrong)?;
            let both = requests.parse().ok().zip(region.parse().ok());
            both.map(|(requests, region)| Pattern::HotSpot(requests, region)).ok_or_else(wrong)
        }
        _ => Err(wrong()),
    }
}

/// Parses `fixed:500`, `poisson:500`, `limited:500`: requests a second.
fn parse_arrival(text: &str) -> Result<Arrival, String> {
    let wrong = || format!("`{text}` is not an arrival; write closed, fixed:500, poisson:500 or limited:500");
    let (kind, rate) = text.split_once(':').unwrap_or((text, "0"));
    let rate: f64 = rate.parse().map_err(|_| wrong())?;
    match kind {
        "closed" if rate == 0.0 => Ok(Arrival::Closed),
        _ if !rate.is_finite() || rate <= 0.0 => Err(wrong()),
        "fixed" => Ok(Arrival::Fixed(rate)),
        "poisson" => Ok(Arrival::Poisson(rate)),
        "limited" => Ok(Arrival::Limited(rate)),
        _ => Err(wrong()),
    }
}

/// Parses `unique`, `compressible:50`, `zeros`.
fn parse_data(text: &str) -> Result<Data, String> {
    let wrong = || format!("`{text}` is not a kind of data; write unique, compressible:50 or zeros");
    match text.split_once(':') {
        None if text == "unique" => Ok(Data::Unique),
        None if text == "zeros" => Ok(Data::Zeros),
        Some(("compressible", percent)) => {
            let percent = percent.parse().ok().filter(|percent| *percent <= 100);
            percent.map(Data::Compressible).ok_or_else(wrong)
        }
        _ => Err(wrong()),
    }
}

fn parse_split(text: &str) -> Result<Vec<BlockShare>, String> {
    let part = |part: &str| {
        let (size, share) = part.split_once('/').ok_or_else(|| format!("`{part}` is not SIZE/SHARE"))?;
        let share = share.parse().map_err(|_| format!("the share of `{part}` is not a whole number"))?;
        Ok(BlockShare { bytes: parse_bytes(size)?, share })
    };
    text.split(':').map(part).collect()
}

/// Parses sizes like the command line: `512`, `4KiB`, `64K`, `1MiB`, `2GiB`, `1TB`.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a size; write 512, 64KiB, 1MiB, 2GiB");
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let value: u64 = text[..end].parse().map_err(|_| wrong())?;
    let scale: u64 = match text[end..].trim() {
        "" | "B" => 1,
        "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        "T" | "TiB" => 1 << 40,
        "KB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => return Err(wrong()),
    };
    value.checked_mul(scale).filter(|bytes| *bytes > 0).ok_or_else(wrong)
}

/// Formats `4KiB`, `1MiB`, `512`.
pub(crate) fn size_text(bytes: u64) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// Reports an unknown key with the nearest valid one.
pub(crate) fn explain(error: &toml::de::Error) -> String {
    let message = error.message();
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default().trim();
    let quoted: Vec<String> = message.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    match quoted.split_first() {
        Some((key, known)) if message.starts_with("unknown field") => {
            let nearest = nearest(key, known).map(|known| format!("; did you mean `{known}`?"));
            format!("{line}: unknown key `{key}`{}", nearest.unwrap_or_default())
        }
        _ => format!("{line}: {message}"),
    }
}

/// The known name with the smallest edit distance.
pub(super) fn nearest(name: &str, known: &[String]) -> Option<String> {
    known.iter().min_by_key(|other| strsim::levenshtein(name, other)).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_name_the_nearest_valid_word() {
        let good = "name = \"x\"\n[[measurement]]\nname = \"a\"\nops = [\"read\"]\npattern = \"random\"\nblocks = [\"4KiB\"]\n";
        assert!(Profile::parse(good).is_ok());
        for (text, part) in [
            (good.replace("pattern", "patern"), "did you mean `pattern`"),
            (good.replace("4KiB", "4 kilo"), "is not a size"),
            (good.replace("random", "zick"), "is not a pattern"),
            (good.replace("\"read\"", ""), "neither ops nor"),
            (good.replace("name = \"x\"", "name = \"x\"\nruns = 0"), "more than 0"),
            ("name = 3".into(), "invalid type"),
            (format!("{good}depths = [1, 1]\n"), "two measurements are called"),
        ] {
            let error = Profile::parse(&text).expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn every_part_of_a_load_has_its_key() {
        let text = "name = \"x\"\nverify = true\ndata = \"compressible:60\"\n[[measurement]]\nname = \"a\"\n\
                    ops = [\"write\", \"discard\"]\npattern = \"random\"\nblocks = [\"4KiB\"]\nfua_every = 3\n\
                    flush_every = 5\nthink_us = 7\narrival = \"poisson:50\"\nmost_requests = 11\n\
                    most_bytes = \"1MiB\"\noffset = \"1MiB\"\nworking_set = \"3MiB\"\n[[measurement]]\nname = \"b\"\n\
                    accesses = [{ share = 1, block = \"8KiB\", read_percent = 67 }, { share = 3, block = \"512\" }]\n";
        let profile = Profile::parse(text).expect("a profile");
        assert!(profile.verify && profile.data == Data::Compressible(60));
        let load = |at: usize| &profile.steps[at].workload;
        let find = |name: &str| profile.steps.iter().position(|step| step.name == name).expect(name);
        let written = load(find("a_write"));
        assert_eq!((written.fua_every, written.flush_every, written.think_us), (3, 5, 7));
        assert_eq!((written.most_requests, written.most_bytes), (Some(11), Some(1 << 20)));
        assert_eq!(written.arrival, Arrival::Poisson(50.0));
        let part = Region { offset_bytes: 1 << 20, length_bytes: 3 << 20 };
        assert_eq!((written.region, load(find("b")).region), (Some(part), None));
        assert!(load(find("a_discard")).discards && !written.discards);
        let lines = &load(find("b")).accesses;
        assert_eq!((lines.len(), lines[0].read_percent, lines[1].bytes), (2, 67, 512));
        for (from, to, part) in [
            ("poisson:50", "poisson", "is not an arrival"),
            ("compressible:60", "gz", "is not a kind of data"),
            ("read_percent = 67", "reed_percent = 67", "did you mean `read_percent`"),
        ] {
            let error = Profile::parse(&text.replace(from, to)).expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn lists_are_multiplied_out() {
        let text = "name = \"x\"\n[[measurement]]\nname = \"{pattern} {block} {depth} {workers}\"\n\
                    ops = [\"read\", \"write\"]\npatterns = [\"sequential\", \"zipf:1.2\", \"hot:80/20\"]\n\
                    blocks = [\"4KiB\", \"1MiB\"]\ndepths = [1, 8]\nworkers = [1, 2]\n";
        let profile = Profile::parse(text).expect("a profile");
        assert_eq!(profile.steps.len(), 48);
        assert!(profile.steps.iter().any(|step| step.name == "zipf 1.20 1MiB 8 2_write"));
        let all = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22]";
        let text = text.replace("depths = [1, 8]", &format!("depths = {all}"));
        let text = text.replace("workers = [1, 2]", &format!("workers = {all}"));
        assert!(Profile::parse(&text).expect_err("too many").to_string().contains("stands for"));
    }
}
