"""Documents of a daemon: dictionaries with the keys of `pool status --json` and its neighbours."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, TypedDict

__all__ = ["Activity", "DriveStatus", "Event", "PoolStatus", "VolumeStatus"]


class Activity(TypedDict):
    """A running or pending job: rebuild, scrub, convert, destage, tier or rebalance.

    `mb_per_s`: 10^6 bytes per second, 0 if it does not run. `volume`: empty for the whole pool.
    """

    kind: str
    volume: str
    drive: Optional[str]
    percent: float
    mb_per_s: float
    seconds_left: Optional[float]


class DriveStatus(TypedDict):
    """A drive of a pool, present or not. `reason`: why it is not online."""

    id: str
    path: str
    role: str
    state: str
    read_errors: int
    write_errors: int
    checksum_errors: int
    capacity_bytes: int
    usable_bytes: int
    allocated_bytes: int
    reason: Optional[str]
    successor: Optional[str]
    serial: Optional[str]
    model: Optional[str]
    firmware: Optional[str]
    slot: Optional[str]
    temperature_c: Optional[int]
    temperature_limit_c: Optional[int]
    smart: Optional[str]


class VolumeStatus(TypedDict):
    """A volume.

    `redundancy_left`: further drives whose loss it survives, in any combination. `lost_blocks`: of
    4 KiB; reading one is an error until it is rewritten. `conversion`: old layout and progress.
    """

    pool: str
    name: str
    id: str
    state: str
    layout: str
    columns: int
    groups: int
    interleave_bytes: int
    capacity_bytes: int
    allocated_bytes: int
    written_bytes: Optional[int]
    redundancy_left: int
    lost_blocks: int
    thin: bool
    write_back: bool
    checksums: bool
    pin: str
    slices: int
    conversion: Optional[Dict[str, Any]]
    drives: List[Dict[str, Any]]
    failure: Optional[str]


class PoolStatus(TypedDict):
    """A pool, its drives and volumes.

    `condition` explains the `state`; `action` is the next command, empty if none is needed.
    """

    name: str
    id: str
    state: str
    condition: str
    action: str
    capacity_bytes: int
    allocated_bytes: int
    provisioned_bytes: int
    overhead_percent: float
    slab_bytes: int
    drives: List[DriveStatus]
    volumes: List[VolumeStatus]
    activity: List[Activity]
    notices: List[str]
    last_scrub: Optional[Dict[str, int]]
    rebuild_priority_percent: int
    generation: int
    events: int


class Event(TypedDict):
    """An event of a pool. `time`: UTC, as text."""

    time: str
    time_unix_ms: int
    kind: str
    text: str
