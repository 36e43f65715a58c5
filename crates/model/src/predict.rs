//! What a system delivers under a workload, and what limits it.
