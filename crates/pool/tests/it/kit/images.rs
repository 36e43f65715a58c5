//! Images of pools as a version of the product left them, kept in `tests/images`: their format,
//! reading them, and the expected contents. Shared by the tests, by the fuzzers' corpus, and by
//! `examples/make_image.rs`, which creates new ones.
//!
//! An image is a folder: `NAME.packed` for each drive (format: `drive/src/drives/packed.rs`), and
//! `expected.json` with the exact contents of every volume and the pool's status as reported by the
//! version that made it. A later version may report more, but nothing different. Volumes hold
//! blocks of 4 KiB of one repeated word each, so that images, parity included, pack well.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stripewise_drive::{BufferPool, Context, Drive, MemoryDrive};
use stripewise_pool::{
    DriveStatus, OfDestroyed, OpenMode, Pool, PoolError, PoolOptions, Volume, VolumeInfo, inspect,
};

pub const BLOCK: u64 = 4096;
/// Blocks per read when contents are compared.
const PIECE_BLOCKS: usize = 64;

/// A range of a volume that was written and flushed. Seed 0 reads as zeros.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Written {
    pub offset_bytes: u64,
    pub length_bytes: u64,
    pub seed: u64,
}

/// Contents of a volume. Later ranges override earlier ones; the rest reads as zeros.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeContents {
    pub name: String,
    pub capacity_bytes: u64,
    pub written: Vec<Written>,
    /// Offsets of lost blocks of 4 KiB: reading them is an error.
    pub lost_bytes: Vec<u64>,
}

/// State of the pool when the image was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    pub format_version: u32,
    /// Version of the product that made the image.
    pub made_by: String,
    /// Description of the image.
    pub what: String,
    /// Output of `drive show` for each drive, by file name.
    pub labels: serde_json::Map<String, Value>,
    /// Output of `pool status`, opened read-only.
    pub status: Value,
    pub volumes: Vec<VolumeContents>,
}

/// Folder of all images.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/images")
}

/// Drives in a folder, in the order of their names, which are their labels.
pub fn drives_in(folder: &Path) -> Vec<Rc<MemoryDrive>> {
    let entries = std::fs::read_dir(folder).expect("a folder of images");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "packed")).collect();
    paths.sort();
    let unpacked = |path: &PathBuf| {
        let name = path.file_stem().expect("a name").to_string_lossy();
        let packed = std::fs::read(path).expect("readable");
        MemoryDrive::unpack(&name, &packed).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
    };
    paths.iter().map(unpacked).collect()
}

pub fn expected_in(folder: &Path) -> Expected {
    let text = std::fs::read(folder.join("expected.json")).expect("readable");
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
}

/// The word that a block of a volume consists of.
fn word(seed: u64, block: u64) -> [u8; 8] {
    let mixed = (block ^ seed << 40).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 31).to_le_bytes()
}

/// Contents of a range that begins at a block.
pub fn contents(seed: u64, first_block: u64, blocks: u64) -> Vec<u8> {
    each_with(&vec![seed; blocks as usize], first_block)
}

/// Contents of consecutive blocks, each with a seed of its own.
fn each_with(seeds: &[u64], first_block: u64) -> Vec<u8> {
    let mut bytes = vec![0; seeds.len() * BLOCK as usize];
    for ((block, seed), to) in (first_block..).zip(seeds).zip(bytes.chunks_exact_mut(BLOCK as usize)) {
        if *seed != 0 {
            to.copy_from_slice(&word(*seed, block).repeat(BLOCK as usize / 8));
        }
    }
    bytes
}

impl VolumeContents {
    /// Seed of each block's last write.
    fn seeds(&self) -> Vec<u64> {
        let mut seeds = vec![0; (self.capacity_bytes / BLOCK) as usize];
        for written in &self.written {
            let first = (written.offset_bytes / BLOCK) as usize;
            seeds[first..first + (written.length_bytes / BLOCK) as usize].fill(written.seed);
        }
        seeds
    }

    /// Checks the whole volume; the error names the first difference.
    pub async fn check(&self, volume: &Volume) -> Result<(), String> {
        if volume.capacity_bytes() != self.capacity_bytes {
            return Err(format!("{} has {} bytes", self.name, volume.capacity_bytes()));
        }
        let seeds = self.seeds();
        for (index, seeds) in seeds.chunks(PIECE_BLOCKS).enumerate() {
            let first = (index * PIECE_BLOCKS) as u64;
            let expected = each_with(seeds, first);
            match volume.read(first * BLOCK, expected.len()).await {
                Ok(read) if read.to_vec() == expected => {}
                // A wrong block, or one that is lost.
                _ => self.check_blocks(volume, first, seeds).await?,
            }
        }
        Ok(())
    }

    async fn check_blocks(&self, volume: &Volume, first: u64, seeds: &[u64]) -> Result<(), String> {
        for (block, seed) in (first..).zip(seeds) {
            let at = block * BLOCK;
            let read = volume.read(at, BLOCK as usize).await;
            match (read, self.lost_bytes.contains(&at)) {
                (Err(_), true) => {}
                (Ok(_), true) => return Err(format!("{} at {at} is lost, and was read", self.name)),
                (Err(error), false) => return Err(format!("{} at {at}: {error}", self.name)),
                (Ok(read), false) if read.to_vec() == contents(*seed, block, 1) => {}
                (Ok(_), false) => return Err(format!("{} is wrong at {at}", self.name)),
            }
        }
        Ok(())
    }
}

impl Expected {
    /// Checks all volumes of an open pool.
    pub async fn check_contents(&self, pool: &Pool) -> Result<(), String> {
        for contents in &self.volumes {
            let volume = pool.volume(&contents.name).map_err(|error| error.to_string())?;
            contents.check(&volume).await?;
        }
        Ok(())
    }
}

/// Opens the pool on drives or copies of them, also one that was destroyed.
pub async fn open(
    context: &Context,
    buffers: &BufferPool,
    drives: &[Rc<MemoryDrive>],
    mode: OpenMode,
) -> Result<Pool, PoolError> {
    let destroyed = OfDestroyed::BringBack;
    let options = PoolOptions { id_seed: Some(7), destroyed, ..PoolOptions::default() };
    let drives = drives.iter().map(|drive| drive.clone() as Rc<dyn Drive>).collect();
    Pool::open(context, buffers, drives, mode, options).await
}

/// The part of a pool's status that is compared: facts with a fixed meaning, which a later version
/// must report as well.
pub fn kept_status(pool: &Pool) -> Value {
    let status = pool.status();
    let drive = |drive: &DriveStatus| {
        json!({
            "id": drive.id, "path": drive.path, "role": drive.role, "state": drive.state,
            "capacity_bytes": drive.capacity_bytes, "usable_bytes": drive.usable_bytes,
            "allocated_bytes": drive.allocated_bytes, "checksum_errors": drive.checksum_errors,
        })
    };
    let volume = |volume: &VolumeInfo| {
        let shape = &volume.shape;
        let mut kept = json!({
            "id": volume.id, "name": volume.name, "state": volume.state, "level": shape.level,
            "width": shape.width, "groups": shape.groups, "interleave_bytes": shape.interleave_bytes,
            "capacity_bytes": volume.capacity_bytes, "redundancy_left": volume.redundancy_left,
            "lost_blocks": volume.lost_blocks, "thin": volume.thin, "write_back": volume.write_back,
            "checksums": volume.checksums, "pin": volume.pin, "rows": volume.rows,
        });
        if let Some(from) = &volume.conversion {
            kept["conversion"] = json!({"from": from.from, "next_offset_bytes": from.next_offset_bytes});
        }
        kept
    };
    json!({
        "name": status.name, "id": status.id, "state": status.state,
        "capacity_bytes": status.capacity_bytes, "allocated_bytes": status.allocated_bytes,
        "slab_bytes": status.slab_bytes, "generation": status.generation,
        "rebuild_priority_percent": status.rebuild_priority_percent,
        "patrol_bytes_per_s": status.patrol_bytes_per_s, "patrol_interval_s": status.patrol_interval_s,
        "drives": status.drives.iter().map(drive).collect::<Vec<_>>(),
        "volumes": status.volumes.iter().map(volume).collect::<Vec<_>>(),
    })
}

/// The pool label of a drive, or `null` if it has none.
pub async fn label(drive: &MemoryDrive) -> Value {
    serde_json::to_value(inspect(drive).await.expect("readable")).expect("JSON")
}

/// The first place where `now` lacks something of `then` or differs; `now` may have more.
pub fn difference(then: &Value, now: &Value, at: &str) -> Option<String> {
    match (then, now) {
        (Value::Object(then), Value::Object(now)) => then.iter().find_map(|(key, value)| {
            difference(value, now.get(key).unwrap_or(&Value::Null), &format!("{at}.{key}"))
        }),
        (Value::Array(then), Value::Array(now)) if then.len() == now.len() => {
            let pairs = then.iter().zip(now).enumerate();
            pairs
                .into_iter()
                .find_map(|(index, (then, now))| difference(then, now, &format!("{at}[{index}]")))
        }
        (then, now) => (then != now).then(|| format!("{at} was {then} and is {now}")),
    }
}
