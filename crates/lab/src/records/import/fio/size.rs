//! Sizes and depths from fio's options.

use std::collections::BTreeMap;

use super::Side;

/// Engines that have one request in flight, whatever `iodepth` says.
const SYNCHRONOUS: [&str; 6] = ["sync", "psync", "vsync", "pvsync", "pvsync2", "mmap"];

/// Requests in flight of each worker.
pub(super) fn queue_depth(options: &BTreeMap<String, String>) -> Option<u32> {
    let is_synchronous = options.get("ioengine").is_some_and(|engine| SYNCHRONOUS.contains(&&**engine));
    match options.get("iodepth").and_then(|depth| depth.parse().ok()) {
        Some(depth) if !is_synchronous => Some(depth),
        _ if options.is_empty() => None,
        _ => Some(1),
    }
}

/// Block size of the direction at a position of `read,write,trim`; `None` if sizes are mixed.
pub(super) fn block_bytes(options: &BTreeMap<String, String>, position: usize, side: &Side) -> Option<u64> {
    if ["bssplit", "bsrange", "blocksize_range"].iter().any(|key| options.contains_key(*key)) {
        return None;
    }
    let option = options.get("bs").or_else(|| options.get("blocksize"));
    let asked = option.and_then(|sizes| {
        let sizes: Vec<&str> = sizes.split(',').map(str::trim).collect();
        let own = sizes.get(position).or(sizes.last())?;
        Some(own.split(['-', ':']).collect::<Vec<_>>())
    });
    match asked.as_deref() {
        Some([only]) if !only.is_empty() => size_bytes(only),
        Some([low, high]) if low == high => size_bytes(low),
        Some([_, _, ..]) => None,
        // Not an option: all requests have one length, or none is known.
        _ => {
            let (bytes, requests) = side.bytes.zip(side.requests)?;
            let each = bytes / requests;
            (each >= 512.0 && each.fract() == 0.0).then_some(each as u64)
        }
    }
}

/// `4k`, `1M`, `1024`, `4096B`: fio's units are powers of 1024.
pub(super) fn size_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = text[end..].to_ascii_lowercase();
    let shift = match unit.strip_suffix("ib").or_else(|| unit.strip_suffix('b')).unwrap_or(&unit) {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return None,
    };
    text[..end].parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::record::Operation;

    fn side(bytes: f64) -> Side {
        Side {
            name: "read",
            op: Operation::Read,
            bytes: Some(bytes),
            requests: Some(10.0),
            runtime_s: None,
            bytes_per_s: 0.0,
            iops: None,
            latency: None,
            samples: 0.0,
        }
    }

    #[test]
    fn fio_size_suffixes_are_parsed() {
        for (text, bytes) in
            [("4k", 4096), ("1M", 1 << 20), ("1024", 1024), ("64KiB", 65536), ("4kb", 4096), ("512B", 512)]
        {
            assert_eq!(size_bytes(text), Some(bytes), "{text}");
        }
        assert_eq!((size_bytes("many"), size_bytes("99999999999G")), (None, None));
    }

    #[test]
    fn each_direction_has_its_block_size() {
        let of = |value: &str, position| {
            block_bytes(&BTreeMap::from([("bs".to_owned(), value.to_owned())]), position, &side(40_960.0))
        };
        assert_eq!([0, 1, 2].map(|position| of("4k,8k", position)), [4096, 8192, 8192].map(Some));
        assert_eq!([0, 1].map(|position| of(",8k", position)), [4096, 8192].map(Some));
        assert_eq!((of("64k", 1), of("4k-8k", 0), of("4k-4k", 0)), (Some(65536), None, Some(4096)));
        assert_eq!(block_bytes(&BTreeMap::new(), 0, &side(40_960.0)), Some(4096));
        assert_eq!(block_bytes(&BTreeMap::new(), 0, &side(40_961.0)), None);
        let split = BTreeMap::from([("bssplit".to_owned(), "4k/50:8k/50".to_owned())]);
        assert_eq!(block_bytes(&split, 0, &side(40_960.0)), None);
    }

    #[test]
    fn synchronous_engines_have_one_request_in_flight() {
        let of = |engine: &str| {
            let options = [("ioengine", engine), ("iodepth", "32")];
            queue_depth(&options.map(|(key, value)| (key.to_owned(), value.to_owned())).into())
        };
        assert_eq!((of("psync"), of("libaio"), queue_depth(&BTreeMap::new())), (Some(1), Some(32), None));
    }
}
