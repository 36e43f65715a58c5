//! Entries of kind `measured`: what `drive measure` writes, and how it is read again.

use std::fmt::Write;

use super::entry::{CatalogueError, Reader};
use crate::hdd::ParameterError;
use crate::measured::{MeasuredParameters, Response, ResponseTable, Taken};

const NAMES: [&str; 19] = [
    "capacity_bytes",
    "queue_depth",
    "queue_bytes",
    "longest_request_bytes",
    "gap_bytes",
    "random_read_us",
    "sequential_read_us",
    "random_write_us",
    "sequential_write_us",
    "seek_us",
    "zones_mb_per_s",
    "read_cache_kib",
    "read_cache_us",
    "write_burst_kib",
    "write_burst_us",
    "flush_us",
    "forced_write_us",
    "overlap_percent",
    "mixing_percent",
];

/// Reads the parameters of an entry.
pub(super) fn read(reader: &Reader) -> Result<MeasuredParameters, CatalogueError> {
    reader.check_names(&NAMES)?;
    let refused = |error: ParameterError| reader.wrong(&error.parameter, error.why);
    let table = |name: &str| {
        let cells = reader.rows(name, 3)?.into_iter().map(|row| {
            let whole =
                |value: f64| (value.fract() == 0.0 && (1.0..1e12).contains(&value)).then_some(value as u64);
            let depth = whole(row[1]).and_then(|depth| u32::try_from(depth).ok());
            match (whole(row[0]), depth) {
                (Some(block_bytes), Some(depth)) => Ok(Response { block_bytes, depth, us: row[2] }),
                _ => Err(reader.wrong(name, format!("{row:?} is not a block size, depth and time"))),
            }
        });
        let cells = cells.collect::<Result<Vec<_>, CatalogueError>>()?;
        ResponseTable::new(name, &cells).map_err(refused)
    };
    let curve = |name: &str| {
        let rows = reader.rows(name, 2)?;
        Ok(rows.into_iter().map(|row| (row[0], row[1])).collect::<Vec<_>>())
    };
    let parameters = MeasuredParameters {
        capacity_bytes: reader.whole("capacity_bytes")?,
        queue_depth: reader.small("queue_depth")?,
        queue_bytes: reader.whole("queue_bytes")?,
        longest_request_bytes: reader.whole("longest_request_bytes")?,
        gap_bytes: reader.whole("gap_bytes")?,
        random_read: table("random_read_us")?,
        sequential_read: table("sequential_read_us")?,
        random_write: table("random_write_us")?,
        sequential_write: table("sequential_write_us")?,
        seek: curve("seek_us")?,
        zones: curve("zones_mb_per_s")?,
        read_cache_kib: reader.whole("read_cache_kib")?,
        read_cache_us: reader.number("read_cache_us")?,
        write_burst_kib: reader.whole("write_burst_kib")?,
        write_burst_us: reader.number("write_burst_us")?,
        flush_us: reader.number("flush_us")?,
        forced_write_us: reader.number("forced_write_us")?,
        overlap_percent: reader.number("overlap_percent")?,
        mixing: curve("mixing_percent")?,
    };
    parameters.check().map_err(refused)?;
    Ok(parameters)
}

/// The entry of a drive that was measured; `source` says which drive, and when.
pub fn drive_text(name: &str, title: &str, source: &str, taken: &Taken) -> String {
    // TOML reads the escapes of JSON strings; of the other characters, one is not allowed.
    let quoted = |text: &str| serde_json::Value::from(text.replace('\u{7f}', "?")).to_string();
    let mut text = String::from("# Written by `stripewise drive measure`.\n");
    for note in &taken.notes {
        let _ = writeln!(text, "# {}", note.replace(['\n', '\r'], " "));
    }
    let _ = writeln!(text, "name = {}\ntitle = {}", quoted(name), quoted(title));
    let _ = writeln!(text, "kind = \"measured\"\n\n[parameters]");
    let mut put = |name: &str, value: String, from: &str, what: &str| {
        let source = quoted(&format!("{source}{what}"));
        let _ = writeln!(text, "{name} = {{ value = {value}, from = \"{from}\", source = {source} }}");
    };
    let found = &taken.parameters;
    let says = ", as it says of itself";
    put("capacity_bytes", found.capacity_bytes.to_string(), "measured", says);
    put("queue_depth", found.queue_depth.to_string(), "measured", says);
    put("queue_bytes", found.queue_bytes.to_string(), "measured", says);
    put("longest_request_bytes", found.longest_request_bytes.to_string(), "measured", says);
    put("gap_bytes", found.gap_bytes.to_string(), "measured", says);
    let cells = "; rows of block size in bytes, depth, µs from one completion to the next";
    put("random_read_us", table(&found.random_read), "measured", cells);
    put("sequential_read_us", table(&found.sequential_read), "measured", cells);
    let (from, writes) = match taken.wrote {
        true => (
            "measured",
            format!("{cells}; steady state: {:.0} % of the first rate", taken.steady_state_percent),
        ),
        false => ("assumed", "; nothing was written: taken to be as reads".to_owned()),
    };
    put("random_write_us", table(&found.random_write), from, &writes);
    put(
        "sequential_write_us",
        table(&found.sequential_write),
        from,
        if taken.wrote { cells } else { &writes },
    );
    put("seek_us", curve(&found.seek), "measured", "; rows of distance in bytes, µs of a read of 4 KiB");
    put("zones_mb_per_s", curve(&found.zones), "measured", "; rows of place as a share of the drive, MB/s");
    put("read_cache_kib", found.read_cache_kib.to_string(), "measured", ", reads within working sets");
    put("read_cache_us", number(found.read_cache_us), "measured", ", reads of 4 KiB");
    put("write_burst_kib", found.write_burst_kib.to_string(), from, ", writes of 4 KiB after idleness");
    put("write_burst_us", number(found.write_burst_us), from, ", writes of 4 KiB after idleness");
    put("flush_us", number(found.flush_us), from, ", with nothing left to write");
    put("forced_write_us", number(found.forced_write_us), from, ", forced writes of 4 KiB");
    put("overlap_percent", number(found.overlap_percent), "measured", ", reads of 4 KiB and 1 MiB in turn");
    let mixing = "; rows of block size, percent of what reads and writes take apart";
    put("mixing_percent", curve(&found.mixing), from, mixing);
    text
}

/// Four significant digits: no measurement has more.
fn number(value: f64) -> String {
    if value == 0.0 {
        return "0.0".into();
    }
    let digits = (3 - value.abs().log10().floor() as i32).max(1) as usize;
    format!("{value:.digits$}")
}

fn table(table: &ResponseTable) -> String {
    let cell = |cell: Response| format!("[{}, {}, {}]", cell.block_bytes, cell.depth, number(cell.us));
    format!("[{}]", table.cells().map(cell).collect::<Vec<_>>().join(", "))
}

fn curve(points: &[(f64, f64)]) -> String {
    let point = |(place, value): &(f64, f64)| format!("[{place:?}, {}]", number(*value));
    format!("[{}]", points.iter().map(point).collect::<Vec<_>>().join(", "))
}
