"""The models: predictions, reliability, advice, and how good they are."""

from __future__ import annotations

import json
import os
from typing import Any, Iterable, Mapping, Union, cast

from . import _engine, _native
from ._progress import Progress, reporter
from ._sizes import Size, optional_bytes, size_bytes
from ._types import Advice, Drive, Prediction, Reliability, Replay, Torture, Validation

__all__ = ["advise", "catalogue", "predict", "reliability", "replay", "sweep", "torture", "validate"]

Path = Union[str, "os.PathLike[str]"]
#: Hours, a distribution in the notation of `reliability`, or `"none"`.
Hours = Union[float, str]


def predict(
    system: str | None = None,
    *,
    drives: str | None = None,
    layout: str | None = None,
    columns: int | None = None,
    groups: int | None = None,
    interleave: Size | None = None,
    controller: str = "hba",
    controllers: int = 1,
    over: str | None = None,
    link: str | None = None,
    state: str = "normal",
    profile: str | None = None,
    pattern: str | None = None,
    block: Size | None = None,
    depth: int = 32,
    workers: int = 1,
    read_share: float = 0.5,
    span: Size | None = None,
) -> Prediction:
    """Predict the performance and bottleneck of a system, or of drives under a layout.

    >>> predict(drives="4xmg08ada800e", layout="raid5", pattern="seq-read")["bottleneck"]
    'drives'

    :param system: a system of the catalogue; or give `drives` and `layout`
    :param drives: number and name of the drives, as in `4xmg08ada400e`
    :param layout: raid0, raid1, raid4, raid5, raid6, raid7, raid10, raid50, raid60, single
    :param columns: drives per row; all by default
    :param groups: groups of raid50 and raid60
    :param interleave: strip size in bytes or as text
    :param controller: controller or software, by its name in the catalogue
    :param controllers: controllers that share the drives
    :param over: devices below software RAID: jbod, simple-volumes, hardware-raid0
    :param link: link between host and array, as in `10gbe`
    :param state: normal, degraded or rebuilding
    :param profile: method of the laboratory whose loads to predict; `toshiba` by default
    :param pattern: one load instead: seq-read, seq-write, rand-read, rand-write, mixed
    :param block: size of a request; 4 KiB for random loads and 1 MiB for sequential ones by default
    :param depth: outstanding requests per worker
    :param workers: number of workers
    :param read_share: fraction of reads in a mixed load, 0 to 1
    :param span: part of the array that is used, from its start
    :return: rates in 10^6 bytes and requests per second, latencies in microseconds
    """
    request: dict[str, Any] = {
        "system": system,
        "drives": drives,
        "layout": layout,
        "columns": columns,
        "groups": groups,
        "interleave_bytes": optional_bytes("interleave", interleave),
        "controller": controller,
        "controllers": controllers,
        "over": over,
        "link": link,
        "state": state,
        "profile": profile,
        "pattern": pattern,
        "block_bytes": optional_bytes("block", block),
        "depth": depth,
        "workers": workers,
        "read_share": read_share,
        "span_bytes": optional_bytes("span", span),
    }
    return cast(Prediction, json.loads(_native.predict(request)))


def sweep(
    drive: str,
    *,
    drives: Iterable[int] = (4,),
    layouts: Iterable[str] = ("raid0", "raid5", "raid10"),
    interleaves: Iterable[Size] = ("64K",),
    blocks: Iterable[Size] = ("4K", "64K", "1M"),
    depths: Iterable[int] = (1, 32),
    read_shares: Iterable[float] = (0.0, 1.0),
    random_shares: Iterable[float] = (0.0, 1.0),
    workers: int = 1,
    controller: str = "hba",
    link: str | None = None,
    state: str = "normal",
    seed: int = 1,
    threads: int | None = None,
    progress: Progress = None,
) -> _native.Table:
    """Predict every combination of layouts, drives, strip sizes and loads, on all cores.

    An interrupt (Ctrl-C) ends the call within 100 ms. The table depends on the arguments and the
    seed only, never on the number of threads.

    :param drive: the drive, by its name in the catalogue
    :param drives: numbers of drives
    :param layouts: layouts by name
    :param interleaves: strip sizes, in bytes or as text
    :param blocks: request sizes, in bytes or as text
    :param depths: outstanding requests per worker
    :param read_shares: fractions of reads, 0 to 1
    :param random_shares: fractions of random requests, 0 to 1
    :param workers: number of workers
    :param controller: controller or software, by its name in the catalogue
    :param link: link between host and array, as in `10gbe`
    :param state: normal, degraded or rebuilding
    :param seed: random seed
    :param threads: number of threads; one per processor by default
    :param progress: a bar of tqdm by default; see `Progress`
    :return: one row per combination: layout, drives, interleave_kib, block_bytes, depth,
        read_share, random_share, mb_per_s, iops, latency_mean_us, latency_p99_us, bottleneck. The
        figures of an impossible array are missing, and `bottleneck` says why
    """
    request: dict[str, Any] = {
        "drive": drive,
        "drives": list(drives),
        "layouts": list(layouts),
        "interleaves_bytes": [size_bytes("interleaves", size) for size in interleaves],
        "blocks_bytes": [size_bytes("blocks", size) for size in blocks],
        "depths": list(depths),
        "read_shares": [float(share) for share in read_shares],
        "random_shares": [float(share) for share in random_shares],
        "workers": workers,
        "controller": controller,
        "link": link,
        "state": state,
        "seed": seed,
        "threads": threads,
    }
    with reporter(progress, "predicting", "points") as report:
        return cast(_native.Table, _engine.current().sweep(request, report))


def reliability(
    layout: str,
    drives: int,
    *,
    columns: int | None = None,
    groups: int | None = None,
    years: float = 10.0,
    mttf_hours: float | None = None,
    mttr_hours: float | None = None,
    failure: str | None = None,
    restore: str | None = None,
    latent: Hours | None = None,
    ure: Hours | None = None,
    scrub: Hours | None = None,
    spares: int = 0,
    distributed: bool = False,
    replacement: Hours | None = None,
    batch: str | None = None,
    parallel_repairs: bool = False,
    drive: str | None = None,
    capacity: Size | None = None,
    workload: str = "mixed",
    controller: str = "stripewise",
    rebuild_mb_per_s: float | None = None,
    on: str | None = None,
    precision_percent: float | None = None,
    max_trials: int = 100_000_000,
    seed: int = 1,
    threads: int | None = None,
    progress: Progress = None,
) -> Reliability:
    """Estimate the probability that an array loses data, with a 95 % confidence interval.

    Durations are distributions in hours: `weibull:BETA,ETA`, `weibull:GAMMA,ETA,BETA`,
    `exponential:MEAN`, `fixed:HOURS`, `uniform:FROM,TO`. What is left open has published defaults,
    listed in `assumptions`. The answer depends on the arguments and the seed only.

    :param layout: as for `predict`
    :param drives: drives of the array, without dedicated spares
    :param columns: drives per row
    :param groups: groups of raid50 and raid60
    :param years: mission time
    :param mttf_hours: mean time to failure of a drive; exponential
    :param mttr_hours: mean time to repair; exponential
    :param failure: distribution of a drive's lifetime
    :param restore: distribution of a rebuild's duration
    :param latent: mean hours to a latent sector error on a clean drive, or `"none"`
    :param ure: unrecoverable read errors per bit by the data sheet (1e-14), or bits per error (1e14)
    :param scrub: hours between scrubs, a distribution, or `"none"`
    :param spares: spare drives
    :param distributed: spare space on all drives instead
    :param replacement: hours until a new drive is there if no spare is left, or `"none"`
    :param batch: fraction of bad batches and the factor by which their drives fail faster:
        `0.05:10`
    :param parallel_repairs: run all rebuilds of a group at once
    :param drive: drive for the predicted rebuild time
    :param capacity: capacity of a drive; 8 TB by default
    :param workload: load during a rebuild, as for `advise`
    :param controller: controller or software, by its name in the catalogue
    :param rebuild_mb_per_s: rebuild rate instead of the predicted one, in 10^6 bytes per second
    :param on: array below each drive, as in `raid5:4`
    :param precision_percent: largest half-width of the interval, in percent of the estimate
    :param max_trials: largest number of trials
    :param seed: random seed
    :param threads: number of threads
    :param progress: a bar of tqdm by default; see `Progress`
    """
    request: dict[str, Any] = {
        "layout": layout,
        "drives": drives,
        "columns": columns,
        "groups": groups,
        "years": years,
        "mttf_hours": mttf_hours,
        "mttr_hours": mttr_hours,
        "failure": failure,
        "restore": restore,
        "latent": _text(latent),
        "ure": _text(ure),
        "scrub": _text(scrub),
        "spares": spares,
        "distributed": distributed,
        "replacement": _text(replacement),
        "batch": batch,
        "parallel_repairs": parallel_repairs,
        "drive": drive,
        "capacity_bytes": optional_bytes("capacity", capacity),
        "workload": workload,
        "controller": controller,
        "rebuild_mb_per_s": rebuild_mb_per_s,
        "on": on,
        "precision_percent": precision_percent,
        "max_trials": max_trials,
        "seed": seed,
        "threads": threads,
    }
    with reporter(progress, "until the interval is narrow enough", "trials") as report:
        return cast(Reliability, _engine.current().reliability(request, report))


def advise(
    drives: str | None = None,
    *,
    workload: str = "mixed",
    link: str | None = None,
    capacity: Size | None = None,
    risk_per_year: float = 0.001,
    ure: Hours | None = None,
    spares: int = 0,
    journal: str | None = None,
    controller: str = "stripewise",
    controllers: int = 1,
    bays: int | None = None,
    prices: Mapping[str, float] | None = None,
    budget: float | None = None,
    rebuild_noise: float | None = None,
    seed: int = 1,
    report: Path | None = None,
    progress: Progress = None,
) -> Advice:
    """Rank the layouts for drives and a workload, each with a reason.

    :param drives: available drives: `4x8TB-hdd,2xmg08ada800e`; or files that `drive measure` wrote,
        as in `4xdrive.toml`
    :param workload: sequential, random, mixed, backup, archive, media, a method of the laboratory,
        or percentages: `read=70,random=100,block=4KiB,depth=32`
    :param link: link between array and client: `1gbe`, `10gbe`, `usb3`, `400MB/s` …
    :param capacity: required usable capacity; without it, more is better
    :param risk_per_year: accepted probability of data loss per year, 0 to 1
    :param ure: unrecoverable read errors per bit by the data sheet (1e-14)
    :param spares: drives to keep as spares
    :param journal: solid-state drives for a journal, as in `2x500GB-ssd`
    :param controller: controller or software, by its name in the catalogue
    :param controllers: controllers that can share the drives
    :param bays: drive bays
    :param prices: price of one drive, by its name
    :param budget: for all drives; with it, any number of each drive can be bought
    :param rebuild_noise: smallest rate during a rebuild, as a fraction of the normal rate
    :param seed: random seed
    :param report: path of a page of HTML to write
    :param progress: a bar of tqdm by default; see `Progress`
    """
    request: dict[str, Any] = {
        "drives": drives,
        "workload": workload,
        "link": link,
        "capacity_bytes": optional_bytes("capacity", capacity),
        "risk_per_year": risk_per_year,
        "ure": _text(ure),
        "spares": spares,
        "journal": journal,
        "controller": controller,
        "controllers": controllers,
        "bays": bays,
        "prices": dict(prices or {}),
        "budget": budget,
        "rebuild_noise": rebuild_noise,
        "seed": seed,
    }
    with reporter(progress, "predicting", "arrays and risks") as note:
        document, page = _native.advise(request, note)
    if report is not None:
        with open(report, "w", encoding="utf-8") as file:
            file.write(page)
    return cast(Advice, json.loads(document))


def validate(
    study: str | None = None,
    *,
    data: Path | None = None,
    halves: bool = False,
    leave_out: bool = False,
    seed: int = 1,
) -> Validation:
    """Compare the predictions with every row of the published studies.

    :param study: 000, 001, 002 or 004; all by default
    :param data: a folder of CSV files with the same columns, or one such file, instead
    :param halves: also fit the numbers to one half of each study and predict the other: minutes
    :param leave_out: also leave out each system and each layout of a study in turn, fit the numbers
        to the other rows, and predict those left out: minutes
    :param seed: random seed of the split into halves, and of where fits start
    :return: errors in percent; `rows` is a table
    """
    path = None if data is None else os.fspath(data)
    document, rows = _native.validate(study, path, halves, leave_out, seed)
    return cast(Validation, {**json.loads(document), "rows": rows})


def replay(drive: Path, trace: Path, *, seed: int = 1) -> Replay:
    """Replay a measured trace against a described hard disk; times in milliseconds.

    :param drive: description of the drive, in the format of `studies/disksim/README.md`
    :param trace: requests with their measured response times
    :param seed: random seed of the rotational phase, which is not in the trace
    """
    return cast(Replay, json.loads(_native.replay(os.fspath(drive), os.fspath(trace), seed)))


def torture(
    seed: int = 1,
    runs: int = 200,
    *,
    focus: str | None = None,
    threads: int | None = None,
    progress: Progress = None,
) -> Torture:
    """Lead random pools through every fault in virtual time, and check every promise of the engine.

    A run is named by its seed and is the same every time. An interrupt ends the call at once; the
    threads finish the runs that they have begun.

    :param seed: seed of the first run; the others follow it
    :param runs: number of runs
    :param focus: lives that provoke one kind of fault; all kinds by default
    :param threads: number of threads; one per processor by default
    :param progress: a bar of tqdm by default; see `Progress`
    """
    request: dict[str, Any] = {"seed": seed, "runs": runs, "focus": focus, "threads": threads}
    with reporter(progress, "torture", "runs") as report:
        return cast(Torture, _engine.current().torture(request, report))


def catalogue(drive: Path | None = None) -> list[Drive]:
    """List the drives of the catalogue, with the source of each number.

    :param drive: one drive only: its name, or the path of an entry (`.toml`)
    """
    return cast("list[Drive]", json.loads(_native.catalogue(None if drive is None else os.fspath(drive))))


def _text(hours: Hours | None) -> str | None:
    """A number or text, as the native code reads it."""
    return hours if hours is None or isinstance(hours, str) else repr(float(hours))
