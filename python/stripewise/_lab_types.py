"""Documents of the laboratory: dictionaries with the keys of the command line's `--json`."""

from __future__ import annotations

from typing import Dict, List, Optional, TypedDict

__all__ = ["Comparison", "Difference", "Figure", "Latencies", "Marker", "Run", "Timeline"]


class Latencies(TypedDict):
    """Latencies over all requests in microseconds, as far as the tool reports them."""

    mean: Optional[float]
    p50: Optional[float]
    p99: Optional[float]
    p999: Optional[float]
    max: Optional[float]


class _Figure(TypedDict):
    name: str
    op: str
    block_bytes: Optional[int]
    queue_depth: Optional[int]
    workers: Optional[int]
    mb_per_s: Optional[float]
    iops: Optional[float]
    latency_us: Optional[Latencies]
    unit: str
    runs: List[float]
    ci95: Optional[List[float]]
    badges: Dict[str, bool]


class Figure(_Figure, total=False):
    """A figure and its runs.

    `mb_per_s`: 10^6 bytes per second; `iops`: requests per second; both are medians. `unit`: that
    of `runs` and `ci95`. `badges`: validity checks; `badge_reasons`: why one does not hold.
    """

    badge_reasons: Dict[str, str]


class Marker(TypedDict):
    """An event of a timeline, in seconds after its start."""

    seconds: float
    what: str


class _Timeline(TypedDict):
    step_seconds: float
    mb_per_s: List[float]
    markers: List[Marker]


class Timeline(_Timeline, total=False):
    """A load over time while an array lost and replaced a drive.

    One value per `step_seconds`: 10^6 bytes per second, latencies in microseconds.
    """

    mean_us: List[float]
    longest_us: List[float]


class _Run(TypedDict):
    run: str
    target: str
    profile: str
    tool: str
    date: str
    finished: bool
    measurements: List[Figure]


class Run(_Run, total=False):
    """A run of a method, or an imported result."""

    environment: Dict[str, str]
    notes: List[str]
    timeline: Timeline


class _Difference(TypedDict):
    measurement: str
    ratio: float
    ci95: Optional[List[float]]
    verdict: str
    p: float
    runs_needed: int


class Difference(_Difference, total=False):
    """A figure of two runs.

    `ratio`: median of the second over that of the first, `ci95` its interval. `verdict`: better,
    worse or cannot_tell; `undecided`: too_few_runs, small or noise. `p`: corrected for all
    comparisons. `runs_needed`: per side, to show a difference of 10 % in nine of ten cases.
    """

    undecided: str


class Comparison(TypedDict):
    """Two runs and the differences of their figures; `only_in_one` names the other figures."""

    first: str
    second: str
    comparisons: List[Difference]
    only_in_one: List[str]
