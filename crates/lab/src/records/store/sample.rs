//! One measured window, as kept in the store.

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};

/// One measured window.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Start, in seconds after the start of the run.
    pub started_s: f64,
    /// Length.
    pub seconds: f64,
    /// Bytes moved.
    pub bytes: u64,
    /// Requests completed.
    pub requests: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Processor time used in the window.
    pub cpu_seconds: Option<f64>,
    /// Latencies of reads, nanoseconds.
    pub read_latency: Option<Histogram<u64>>,
    /// Latencies of writes, nanoseconds.
    pub write_latency: Option<Histogram<u64>>,
    /// Activity in each second.
    pub per_second: Vec<Second>,
}

/// One second of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Second {
    /// Bytes moved.
    pub bytes: u64,
    /// Mean latency of the completed requests; 0 if there are none.
    pub mean_us: f64,
    /// Longest latency.
    pub longest_us: f64,
}

impl<'de> serde::Deserialize<'de> for Second {
    /// Stores before version 3 contain bytes alone.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged)]
        enum Kept {
            Bytes(u64),
            All { bytes: u64, mean_us: f64, longest_us: f64 },
        }
        Ok(match Kept::deserialize(deserializer)? {
            Kept::Bytes(bytes) => Self { bytes, ..Self::default() },
            Kept::All { bytes, mean_us, longest_us } => Self { bytes, mean_us, longest_us },
        })
    }
}

/// Serialises latencies.
pub(super) fn packed(histogram: &Histogram<u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    V2Serializer::new().serialize(histogram, &mut bytes).expect("memory takes every byte");
    bytes
}

/// Parses latencies; `None` if the bytes are invalid.
pub(super) fn unpacked(mut bytes: &[u8]) -> Option<Histogram<u64>> {
    Deserializer::new().deserialize(&mut bytes).ok()
}
