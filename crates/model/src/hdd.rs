//! Hard disks: seek curve, rotation, zones, cache and command queue.
