"""The report's charts from tables, by matplotlib (`pip install 'stripewise[plot]'`).

>>> from stripewise import lab, plot
>>> plot.runs(lab.samples("latest")).figure.savefig("runs.pdf")  # doctest: +SKIP

Each function takes a table of this package (or a table with the same columns of pandas, Polars or
pyarrow) and draws on `axes`, or on new ones, which it returns. Axes are labelled with units; colours
are those of the report, and tell lines apart in grey and for the colour-blind together with markers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple

from ._errors import Error, RequestError
from ._lab_types import Comparison, Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
else:
    Axes = Any

__all__ = ["differences", "figures", "latencies", "lines", "published", "runs", "timeline"]

#: Colours of the report: normal, degraded, rebuilding, then good, bad and soft.
COLOURS = ("#1f6fb2", "#d9822b", "#7a4fa3", "#1a7f37", "#b42318", "#57606a")
MARKERS = ("o", "s", "^", "D", "v", "P")

#: Names of columns, and the text of their axes.
_LABELS = {
    "mb_per_s": "throughput in MB/s",
    "iops": "requests per second",
    "latency_mean_us": "mean latency in µs",
    "latency_p50_us": "median latency in µs",
    "latency_p99_us": "99th percentile of latency in µs",
    "latency_p999_us": "99.9th percentile of latency in µs",
    "latency_max_us": "longest latency in µs",
    "block_bytes": "request size in bytes",
    "depth": "outstanding requests per worker",
    "queue_depth": "outstanding requests per worker",
    "drives": "drives",
    "interleave_kib": "strip in KiB",
    "read_share": "fraction of reads",
    "random_share": "fraction of random requests",
    "error_percent": "error in percent",
    "loss_probability": "probability of data loss",
}
#: Columns whose values double from step to step.
_DOUBLING = {"block_bytes", "depth", "queue_depth", "interleave_kib"}


def figures(table: Any, *, value: str = "mb_per_s", by: str = "run", axes: Optional[Axes] = None) -> Axes:
    """Draw the figures of runs as bars, with their 95 % intervals.

    :param table: of `lab.measurements`
    :param value: column of the heights; intervals are drawn where they are of the same unit
    :param by: column that tells bars of one measurement apart
    """
    axes = _axes(axes)
    rows = _rows(table, "measurement", by, value, "unit", "ci95_low", "ci95_high")
    measurements = _distinct(row["measurement"] for row in rows)
    groups = _distinct(row[by] for row in rows)
    width = 0.8 / max(len(groups), 1)
    unit = {"mb_per_s": "MB/s", "iops": "/s"}.get(value)
    for number, group in enumerate(groups):
        found = [row for row in rows if row[by] == group and row[value] is not None]
        places = [
            measurements.index(row["measurement"]) + (number - (len(groups) - 1) / 2) * width
            for row in found
        ]
        heights = [row[value] for row in found]
        axes.bar(places, heights, width, color=_colour(number), label=str(group))
        has = [row["unit"] == unit and row["ci95_low"] is not None for row in found]
        low, high = (
            [abs(row[value] - row[end]) if there else 0 for row, there in zip(found, has)]
            for end in ("ci95_low", "ci95_high")
        )
        if any(has):
            axes.errorbar(places, heights, (low, high), fmt="none", ecolor="black", capsize=3, linewidth=1)
    axes.set_xticks(range(len(measurements)), measurements, rotation=20 if len(measurements) > 4 else 0)
    axes.set_ylabel(_label(value))
    axes.set_ylim(bottom=0)
    _legend(axes, groups)
    return axes


def runs(table: Any, *, axes: Optional[Axes] = None) -> Axes:
    """Draw every single run relative to the median of its figure: how well they repeat.

    :param table: of `lab.samples`
    """
    axes = _axes(axes)
    rows = [
        row for row in _rows(table, "run", "measurement", "sample", "value") if row["value"] is not None
    ]
    measurements = _distinct(row["measurement"] for row in rows)
    names = _distinct(row["run"] for row in rows)
    for number, name in enumerate(names):
        places, heights = [], []
        for at, measurement in enumerate(measurements):
            values = [
                row["value"] for row in rows if (row["run"], row["measurement"]) == (name, measurement)
            ]
            middle = _median(values)
            for index, value in enumerate(values):
                if middle:
                    places.append(at + (index - (len(values) - 1) / 2) * 0.5 / max(len(values), 1))
                    heights.append(100 * value / middle)
        axes.plot(places, heights, MARKERS[number % len(MARKERS)], color=_colour(number), label=name)
    axes.axhline(100, color="grey", linewidth=0.8)
    axes.set_xticks(range(len(measurements)), measurements, rotation=20 if len(measurements) > 4 else 0)
    axes.set_ylabel("run in percent of the median")
    _legend(axes, names)
    return axes


def latencies(table: Any, *, axes: Optional[Axes] = None) -> Axes:
    """Draw the share of requests that took longer than a latency, both axes logarithmic.

    :param table: of `lab.histograms`
    """
    axes = _axes(axes)
    counts: Dict[Tuple[str, str], Dict[float, int]] = {}
    for row in _rows(table, "measurement", "op", "high_us", "count"):
        kept = counts.setdefault((row["measurement"], row["op"]), {})
        kept[row["high_us"]] = kept.get(row["high_us"], 0) + row["count"]
    for number, ((measurement, op), classes) in enumerate(counts.items()):
        total = left = sum(classes.values())
        places, heights = [], []
        for high in sorted(classes):
            left -= classes[high]
            # The longest latency has no place on a logarithmic axis.
            if left:
                places.append(high)
                heights.append(left / total)
        axes.step(places, heights, where="post", color=_colour(number), label=f"{measurement}, {op}")
    axes.set(
        xscale="log", yscale="log", xlabel="latency in µs", ylabel="fraction of requests that took longer"
    )
    _legend(axes, list(counts))
    return axes


def timeline(of: Timeline, *, axes: Optional[Axes] = None) -> Axes:
    """Draw a load over time with its events: an array that lost and replaced a drive.

    :param of: `lab.run(...)["timeline"]`
    """
    axes = _axes(axes)
    seconds = [(number + 0.5) * of["step_seconds"] for number in range(len(of["mb_per_s"]))]
    axes.plot(seconds, of["mb_per_s"], color=_colour(0), linewidth=1)
    for marker in of["markers"]:
        axes.axvline(marker["seconds"], color=COLOURS[4], linewidth=0.8, linestyle="--")
        axes.annotate(
            marker["what"], (marker["seconds"], 1), xycoords=("data", "axes fraction"), rotation=90,
            va="top", ha="right", fontsize="small",
        )  # fmt: skip
    axes.set(xlabel="time in seconds", ylabel=_label("mb_per_s"), ylim=(0, None))
    return axes


def lines(
    table: Any, *, x: str, y: str = "mb_per_s", by: str = "layout", axes: Optional[Axes] = None
) -> Axes:
    """Draw a column over another, one line for each value of a third: `sweep` and the like.

    Where several rows have the same `x`, the line is their median.

    :param table: of `stripewise.sweep`
    :param x: column of the horizontal axis
    :param y: column of the vertical axis
    :param by: column that tells the lines apart
    """
    axes = _axes(axes)
    rows = [row for row in _rows(table, x, y, by) if row[y] is not None and row[x] is not None]
    groups = _distinct(row[by] for row in rows)
    for number, group in enumerate(groups):
        places = sorted({row[x] for row in rows if row[by] == group})
        heights = [
            _median([row[y] for row in rows if (row[by], row[x]) == (group, place)]) for place in places
        ]
        marker = MARKERS[number % len(MARKERS)]
        axes.plot(places, heights, label=str(group), color=_colour(number), marker=marker)
    if x in _DOUBLING:
        axes.set_xscale("log", base=2)
    axes.set(xlabel=_label(x), ylabel=_label(y))
    axes.set_ylim(bottom=0)
    _legend(axes, groups)
    return axes


def published(table: Any, *, axes: Optional[Axes] = None) -> Axes:
    """Draw predictions over published figures; on the line both are the same.

    :param table: `rows` of `stripewise.validate`
    """
    axes = _axes(axes)
    rows = _rows(table, "study", "published", "predicted")
    rows = [row for row in rows if row["predicted"] and row["published"] > 0]
    studies = _distinct(row["study"] for row in rows)
    for number, study in enumerate(studies):
        of = [row for row in rows if row["study"] == study]
        places, heights = [row["published"] for row in of], [row["predicted"] for row in of]
        axes.plot(places, heights, MARKERS[number % len(MARKERS)], color=_colour(number), markersize=3,
                  label=f"study {study}")  # fmt: skip
    ends = [end(row["published"] for row in rows) for end in (min, max)] if rows else [1.0, 10.0]
    axes.plot(ends, ends, color="grey", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="published, in its unit", ylabel="predicted")
    _legend(axes, studies)
    return axes


def differences(of: Comparison, *, axes: Optional[Axes] = None) -> Axes:
    """Draw the ratios of two runs with their intervals; those that exclude 1 are differences.

    :param of: of `lab.compare`
    """
    axes = _axes(axes)
    colours = {"better": COLOURS[3], "worse": COLOURS[4]}
    for place, one in enumerate(reversed(of["comparisons"])):
        colour = colours.get(one["verdict"], COLOURS[5])
        if one["ci95"] is not None:
            axes.plot(one["ci95"], [place, place], color=colour, linewidth=2, solid_capstyle="butt")
        axes.plot([one["ratio"]], [place], "o" if one["verdict"] in colours else "|", color=colour)
    names = [one["measurement"] for one in reversed(of["comparisons"])]
    axes.set_yticks(range(len(names)), names)
    axes.axvline(1, color="grey", linewidth=0.8)
    axes.set_xlabel(f"{of['second']} / {of['first']}")
    return axes


def _axes(axes: Optional[Axes]) -> Axes:
    if axes is not None:
        return axes
    try:
        import matplotlib.pyplot as pyplot
    except ImportError:
        raise Error("matplotlib is not installed", "pip install 'stripewise[plot]'") from None
    return pyplot.subplots(figsize=(7, 4), layout="constrained")[1]


def _rows(table: Any, *columns: str) -> List[Dict[str, Any]]:
    """The rows of some columns."""
    lists: Dict[str, Sequence[Any]] = {}
    for name in columns:
        try:
            column = table[name]
        except (KeyError, TypeError, IndexError) as error:
            raise RequestError(
                f"the table has no column `{name}`", "help() of the function names the table it draws"
            ) from error
        to_list: Optional[Callable[[], List[Any]]] = None
        for method in ("to_pylist", "to_list", "tolist"):
            to_list = to_list or getattr(column, method, None)
        values = to_list() if to_list is not None else column
        lists[name] = [
            None if isinstance(value, float) and math.isnan(value) else value for value in values
        ]
    return [dict(zip(columns, row)) for row in zip(*lists.values())]


def _distinct(values: Any) -> List[Any]:
    return list(dict.fromkeys(values))


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return (ordered[middle] + ordered[-middle - 1]) / 2 if ordered else 0.0


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _label(column: str) -> str:
    return _LABELS.get(column, column)


def _legend(axes: Axes, groups: Sequence[object]) -> None:
    if len(groups) > 1:
        axes.legend(fontsize="small", frameon=False)
