//! Seek time by distance, compiled into tables so that a scheduler can query it often.

use super::parameter_error::ParameterError;

/// Seek time by distance in cylinders, for reads.
#[derive(Clone, Debug, PartialEq)]
pub enum SeekCurve {
    /// Measured points (cylinders, nanoseconds), distances ascending. Straight lines between
    /// points; below the first point its time; past the last the last slope.
    Table(Vec<(u32, u32)>),
    /// `constant + sqrt · √s + linear · s` with `s` the share of the full stroke, 0 to 1.
    Stroke {
        /// Shortest seek with settling.
        constant_ns: u32,
        /// Square-root term of a full stroke.
        sqrt_ns: u32,
        /// Linear term of a full stroke.
        linear_ns: u32,
    },
}

/// Distances below this are looked up exactly.
const EXACT: usize = 4096;
/// Beyond, this many straight pieces.
const PIECES: usize = 4096;

impl SeekCurve {
    pub(super) fn check(&self) -> Result<(), ParameterError> {
        let refuse = |why: String| Err(ParameterError::new("seek", why));
        match self {
            SeekCurve::Table(points) => {
                if points.is_empty() {
                    return refuse("no points".into());
                }
                if let Some(pair) = points.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
                    return refuse(format!("distance {} comes after {}", pair[1].0, pair[0].0));
                }
                match points.iter().find(|point| point.0 == 0 || point.1 > 1_000_000_000) {
                    Some(point) => refuse(format!("the point {point:?} is not a seek")),
                    None => Ok(()),
                }
            }
            SeekCurve::Stroke { constant_ns, sqrt_ns, linear_ns } => {
                match [constant_ns, sqrt_ns, linear_ns].into_iter().find(|ns| **ns > 1_000_000_000) {
                    Some(ns) => refuse(format!("{ns} ns is more than a second")),
                    None => Ok(()),
                }
            }
        }
    }

    /// Time of a seek over `distance` of `cylinders`.
    pub fn time_ns(&self, distance: u32, cylinders: u32) -> u32 {
        if distance == 0 {
            return 0;
        }
        match self {
            SeekCurve::Table(points) => {
                let after = points.partition_point(|point| point.0 < distance);
                if after == 0 {
                    return points[0].1;
                }
                if points.len() == 1 {
                    return points[0].1;
                }
                let right = after.min(points.len() - 1);
                let (a, b) = (points[right - 1], points[right]);
                let slope = (f64::from(b.1) - f64::from(a.1)) / f64::from(b.0 - a.0);
                (f64::from(a.1) + slope * (f64::from(distance) - f64::from(a.0))).clamp(0.0, 1e9) as u32
            }
            SeekCurve::Stroke { constant_ns, sqrt_ns, linear_ns } => {
                let share = f64::from(distance) / f64::from(cylinders.max(2) - 1);
                let moving = f64::from(*sqrt_ns) * share.sqrt() + f64::from(*linear_ns) * share;
                (f64::from(*constant_ns) + moving) as u32
            }
        }
    }

    pub(super) fn compile(&self, cylinders: u32) -> SeekTable {
        let exact = (0..EXACT.min(cylinders as usize + 1))
            .map(|distance| self.time_ns(distance as u32, cylinders))
            .collect();
        let mut shift = 0;
        while (cylinders >> shift) as usize >= PIECES {
            shift += 1;
        }
        let coarse = match cylinders as usize >= EXACT {
            true => (0..=(cylinders >> shift) + 1)
                .map(|piece| self.time_ns((piece << shift).min(u32::MAX >> 1), cylinders))
                .collect(),
            false => Vec::new(),
        };
        SeekTable { exact, coarse, shift }
    }
}

/// A compiled curve.
#[derive(Clone, Debug)]
pub(super) struct SeekTable {
    exact: Vec<u32>,
    coarse: Vec<u32>,
    shift: u32,
}

impl SeekTable {
    #[inline]
    pub(super) fn time_ns(&self, distance: u32) -> u32 {
        if let Some(time_ns) = self.exact.get(distance as usize) {
            return *time_ns;
        }
        let piece = (distance >> self.shift) as usize;
        let (a, b) = (i64::from(self.coarse[piece]), i64::from(self.coarse[piece + 1]));
        let part = i64::from(distance & ((1 << self.shift) - 1));
        (a + (((b - a) * part) >> self.shift)) as u32
    }
}
