//! The purpose of a drive request. Faults expected: none.

/// The purpose of a drive request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// Client reads and writes.
    #[default]
    Data,
    /// Old data and parity that a write of part of a stripe needs.
    PreRead,
    /// Blocks that missing or damaged data is computed from.
    Reconstruct,
    /// Parity of client writes, and further copies of them.
    Parity,
    /// Journaled data written in place.
    Destage,
    /// First writes of zeros around a client write in a new region.
    Zero,
    /// The journal: batches, headers, replay.
    Journal,
    /// Checksum pages.
    Checksums,
    /// Region map pages.
    RegionMap,
    /// The pool's own record (manifest).
    Record,
    /// Flushes for any purpose.
    Flush,
    /// Filling a new drive: reads of the others and writes to it.
    Rebuild,
    /// Verification of all stored data.
    Scrub,
    /// Copies by other jobs: conversion, column migration.
    Job,
    /// Rewrites of blocks that a drive lost.
    Repair,
    /// Discards.
    Discard,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Self; 16] = [
        Self::Data,
        Self::PreRead,
        Self::Reconstruct,
        Self::Parity,
        Self::Destage,
        Self::Zero,
        Self::Journal,
        Self::Checksums,
        Self::RegionMap,
        Self::Record,
        Self::Flush,
        Self::Rebuild,
        Self::Scrub,
        Self::Job,
        Self::Repair,
        Self::Discard,
    ];

    /// Name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::PreRead => "pre_read",
            Self::Reconstruct => "reconstruct",
            Self::Parity => "parity",
            Self::Destage => "destage",
            Self::Zero => "zero",
            Self::Journal => "journal",
            Self::Checksums => "checksums",
            Self::RegionMap => "region_map",
            Self::Record => "record",
            Self::Flush => "flush",
            Self::Rebuild => "rebuild",
            Self::Scrub => "scrub",
            Self::Job => "job",
            Self::Repair => "repair",
            Self::Discard => "discard",
        }
    }

    /// Label in reports.
    pub fn words(self) -> &'static str {
        match self {
            Self::Data => "client data",
            Self::PreRead => "pre-read",
            Self::Reconstruct => "reconstruction",
            Self::Parity => "parity and copies",
            Self::Destage => "destage",
            Self::Zero => "zeros of new regions",
            Self::Journal => "journal",
            Self::Checksums => "checksum pages",
            Self::RegionMap => "region map",
            Self::Record => "pool record",
            Self::Flush => "flush",
            Self::Rebuild => "rebuild",
            Self::Scrub => "scrub",
            Self::Job => "other jobs",
            Self::Repair => "repair",
            Self::Discard => "discard",
        }
    }
}
