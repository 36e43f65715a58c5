//! Causes that the model lacks, by the findings that do not hold for want of them.

/// Finding, and the cause that would be needed.
pub(super) const CAUSES: &[(&str, &str)] = &[
    (
        "F000-04",
        "a mirror's random reads at depth 1 come from the driver's cache more often than those of a set",
    ),
    ("F000-06", "drives serve a stream again from their buffers, where the file's part on each fits"),
    ("F000-18", "a hit in the driver's cache takes longer in a parity set than in a striped one"),
    ("F000-20", "drives serve a stream again from their buffers, where the file's part on each fits"),
    ("F000-24", "something in the driver that serves streams of writes and is used up between 1 and 4 GiB"),
    (
        "F002-16",
        "the free space of a set of two new drives: random writes here are those of drives in use for days",
    ),
    (
        "F002-53",
        "a controller's time for a random write to a plain volume, which is shorter than to its own set",
    ),
    ("F002-57", "caches of two controllers that gather a stream better for one set than for two volumes"),
    ("F004-21", "ZFS gathers transaction groups in memory, and writes parity sets in pieces of a record"),
    ("F004-24", "memory of the host, or compression: no mirror's drives write faster than one of them"),
    ("F004-25", "work of ZFS for each block of a set with a missing drive, in streams of writes"),
    (
        "F004-32",
        "what the USB box does between two commands: its mirrors lie nearer together than their positions",
    ),
];
