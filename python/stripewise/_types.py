"""Answers of the models: dictionaries with the keys of the command line's `--json`."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, TypedDict

from ._native import Table

__all__ = [
    "Advice",
    "Choice",
    "Drive",
    "Excluded",
    "Figure",
    "Figures",
    "Half",
    "LeftOut",
    "LeftOutGroup",
    "Latency",
    "Limit",
    "Measurement",
    "Member",
    "Parameter",
    "Percentiles",
    "Prediction",
    "Rates",
    "ReadErrors",
    "RebuildErrors",
    "Reliability",
    "Replay",
    "Summary",
    "Torture",
    "TortureFailure",
    "Validation",
]


class Latency(TypedDict):
    """Latency of whole requests, in microseconds."""

    mean: float
    p50: float
    p99: float
    p999: float
    max: float


class Limit(TypedDict):
    """A component, and the requests per second that it could sustain."""

    part: str
    iops: float


class Measurement(TypedDict):
    """One load and its prediction.

    Rates: `mb_per_s` in 10^6 bytes per second, `iops` in requests per second. `headroom`: rate of
    the next bottleneck, as a multiple. Utilisations: 0 to 1. Expected errors: median and 90th
    percentile of such figures in the published studies, in percent.
    """

    name: str
    mb_per_s: float
    iops: float
    latency_us: Latency
    bottleneck: str
    headroom: float
    rebuild_under_load_seconds: Optional[float]
    drive_utilisation: float
    processor_utilisation: float
    expected_error_percent: float
    expected_p90_error_percent: float


class Prediction(Measurement):
    """The first load's prediction, the array, and all loads in `measurements`.

    `rebuild_seconds`: rebuild of one drive without load, `None` without redundancy.
    `drive_utilisations`: 0 to 1 for each drive. `limits`: the tightest first.
    """

    system: str
    layout: str
    state: str
    rebuild_seconds: Optional[float]
    drive_utilisations: List[float]
    limits: List[Limit]
    measurements: List[Measurement]


class Figure(TypedDict):
    """An estimate with its 95 % interval: low and high."""

    mean: float
    ci95: List[float]


class Figures(TypedDict):
    """All estimates, per mission unless the name says otherwise."""

    trials: int
    loss_probability: Figure
    loss_probability_per_year: Figure
    events_per_1000: Figure
    latent_events_per_1000: Figure
    mttdl_hours: Optional[Figure]
    hours_degraded_per_year: Figure
    hours_critical_per_year: Figure
    rebuilds: Figure
    replacement_drives: Figure
    expected_bytes_lost: Figure


class RebuildErrors(TypedDict):
    """Read errors of one rebuild without redundancy left: probabilities."""

    errors_per_bit: float
    bytes_read: float
    by_data_sheet: float
    in_the_field: float


class ReadErrors(TypedDict):
    """Read errors of the data sheet beside field data."""

    rebuild: RebuildErrors
    loss_probability_by_field_data: float
    ci95_by_field_data: List[float]
    field_data: str


class Reliability(TypedDict):
    """Probability of data loss within `years`, with its 95 % interval.

    `mttdl_hours`: mean time to data loss in hours, `None` if no trial lost data.
    """

    layout: str
    drives: int
    years: float
    seed: int
    on: Optional[str]
    trials: int
    loss_probability: float
    ci95: List[float]
    mttdl_hours: Optional[float]
    hours_degraded_per_year: float
    expected_bytes_lost: float
    read_errors: Optional[ReadErrors]
    figures: Figures
    assumptions: List[str]


class Rates(TypedDict):
    """Rates of an array in one state, in 10^6 bytes per second."""

    seq_write: float
    seq_read: float
    mixed: float
    workload: float


class Member(TypedDict):
    """Drives of one kind in an array."""

    count: int
    drive: str
    drive_bytes: int


class Choice(TypedDict):
    """One way to use the drives. `commands` builds it, by system."""

    rank: int
    layout: str
    drives: int
    drive: str
    members: List[Member]
    columns: int
    groups: int
    interleave_bytes: int
    spares: int
    journal_drives: int
    controllers: int
    usable_bytes: int
    normal: Rates
    degraded: Rates
    rebuilding: Rates
    rebuild_seconds: Optional[float]
    rebuild_under_load_seconds: Optional[float]
    loss_probability_per_year: float
    loss_ci95: List[float]
    loss_by_drives_per_year: float
    bottleneck: str
    reason: str
    error_percent: float
    rate_median_error_percent: float
    rate_p90_error_percent: float
    dominated_by: Optional[int]
    equal_to: List[int]
    cost: Optional[float]
    cost_per_tb: Optional[float]
    fits: bool
    commands: Dict[str, List[str]]
    caveats: Dict[str, List[str]]


class Excluded(TypedDict):
    """An array that misses a requirement, and which."""

    array: str
    usable_bytes: int
    loss_probability_per_year: Optional[float]
    why: str


class Advice(TypedDict):
    """Arrays that meet all requirements, the best first.

    `sensitivity`: changes of the requirements that would change the first choice.
    """

    assumptions: List[str]
    choices: List[Choice]
    excluded: List[Excluded]
    sensitivity: List[str]


class Summary(TypedDict):
    """Errors of a table's or study's rows, in percent."""

    study: str
    table: str
    rows: int
    unanswered: int
    median_error_percent: float
    p90_error_percent: float
    pairs_in_order_percent: Optional[float]


class Half(TypedDict):
    """Errors of a study on the half that the numbers were fitted to, and on the other."""

    study: str
    fitted_median_percent: float
    other_median_percent: float
    fitted_p90_percent: float
    other_p90_percent: float


class LeftOutGroup(TypedDict):
    """A system or layout that was left out; errors in percent.

    `defaults` names the numbers that no other row depends on, which have the model's default.
    """

    name: str
    rows: int
    defaults: List[str]
    rows_with_defaults: int
    median_error_percent: float
    p90_error_percent: float


class LeftOut(TypedDict):
    """Errors of a study's rows, each left out of a fit with its system or layout."""

    study: str
    one_of: str
    rows: int
    rows_with_defaults: int
    median_error_percent: Optional[float]
    p90_error_percent: Optional[float]
    fitted_median_percent: Optional[float]
    fitted_p90_percent: Optional[float]
    groups: List[LeftOutGroup]


class Validation(TypedDict):
    """The model's errors on the published figures.

    `rows` has the columns study, table, row, metric, published, predicted, error_percent and
    fitted.
    """

    tables: List[Summary]
    studies: List[Summary]
    rows: Table
    median_error_percent: float
    p90_error_percent: float
    fitted_numbers: int
    halves: List[Half]
    left_out: List[LeftOut]


class Percentiles(TypedDict):
    """Response times in milliseconds."""

    p50: float
    p90: float
    p99: float
    p999: float
    max: float


class Replay(TypedDict):
    """A replayed trace beside its measurement, in milliseconds."""

    drive: str
    requests: int
    demerit_ms: float
    demerit_percent: float
    mean_ms: float
    measured_mean_ms: float
    percentiles_ms: Percentiles
    measured_percentiles_ms: Percentiles


#: A number of a drive, and its origin: data-sheet, measured, fitted (to `rows`) or assumed.
Parameter = TypedDict("Parameter", {"value": Any, "from": str, "source": str, "rows": List[str]})


class Drive(TypedDict):
    """A drive of the catalogue."""

    name: str
    title: str
    kind: str
    capacity_bytes: int
    parameters: Dict[str, Parameter]


class TortureFailure(TypedDict):
    """A promise that the run of a seed broke."""

    seed: int
    promise: str
    detail: str


class Torture(TypedDict):
    """Completed runs, broken promises, and counts of the faults that struck."""

    first_seed: int
    runs: int
    failures: List[TortureFailure]
    coverage: Dict[str, int]
