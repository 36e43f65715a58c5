"""The laboratory's results: runs, figures, samples and latencies of the result store as tables.

>>> from stripewise import lab
>>> lab.samples("latest").to_pandas().groupby("measurement")["value"].std()  # doctest: +SKIP

`stripewise lab run` and `lab import` fill the store. A run is named by its name, by the beginning of
its name if only one run begins so, or by `latest`. `store` is the path of another store than this
user's: `lab.sqlite` in `STRIPEWISE_HOME`.
"""

from __future__ import annotations

import json
import os
from typing import Union, cast

from . import _native
from ._home import state_folder
from ._lab_types import Comparison, Difference, Figure, Latencies, Marker, Run, Timeline

__all__ = [
    "Comparison",
    "Difference",
    "Figure",
    "Latencies",
    "Marker",
    "Run",
    "Timeline",
    "compare",
    "histograms",
    "measurements",
    "run",
    "runs",
    "samples",
    "seconds",
]

Path = Union[str, "os.PathLike[str]"]


def runs(*, store: Path | None = None) -> _native.Table:
    """List the runs of the store, the newest first.

    :return: run, date (as recorded), profile, tool, target, finished
    """
    return _native.lab_runs(_path(store))


def run(name: str = "latest", *, store: Path | None = None) -> Run:
    """Load a run with its figures, environment and notes: the document of `lab show --json`."""
    return cast(Run, json.loads(_native.lab_run(_path(store), name)))


def measurements(*names: str, store: Path | None = None) -> _native.Table:
    """Load the figures of runs, one row each.

    :param names: runs; all by default
    :return: run, measurement, op, block_bytes, queue_depth, workers, mb_per_s (10^6 bytes per
        second), iops (requests per second), latency_mean_us, latency_p50_us, latency_p99_us,
        latency_p999_us, latency_max_us (microseconds), unit (of the interval), runs, ci95_low,
        ci95_high (95 % interval, missing with too few runs), valid (every badge holds)
    """
    return _native.lab_measurements(_path(store), list(names))


def samples(*names: str, store: Path | None = None) -> _native.Table:
    """Load the single runs of every figure, with the measured windows.

    :param names: runs; all by default
    :return: run, measurement, sample (from 1), value, unit, started_s (seconds after the start of
        the run), seconds, bytes, requests, errors, cpu_seconds. Imports have no windows
    """
    return _native.lab_samples(_path(store), list(names))


def seconds(*names: str, store: Path | None = None) -> _native.Table:
    """Load the activity in each second of every measured window.

    :param names: runs; all by default
    :return: run, measurement, sample (from 1), second (from 1), bytes, latency_mean_us,
        latency_max_us (missing if no request completed)
    """
    return _native.lab_seconds(_path(store), list(names))


def histograms(*names: str, store: Path | None = None) -> _native.Table:
    """Load the latencies of every measured window, as classes of three significant digits.

    :param names: runs; all by default
    :return: run, measurement, sample (from 1), op (read or write), low_us, high_us (bounds of the
        class in microseconds, inclusive), count (completed requests). Empty classes are left out
    """
    return _native.lab_histograms(_path(store), list(names))


def compare(first: str, second: str = "latest", *, store: Path | None = None) -> Comparison:
    """Compare a run with a baseline: better, worse or undecided, with 95 % intervals.

    The code of `stripewise lab compare`: a verdict needs medians that differ by 3 % or more and an
    exact rank test below 5 %, corrected for all comparisons; intervals have the same correction.

    :param first: baseline run
    :param second: run to compare with it
    """
    return cast(Comparison, json.loads(_native.lab_compare(_path(store), first, second)))


def _path(store: Path | None) -> str:
    return os.fspath(store if store is not None else state_folder() / "lab.sqlite")
