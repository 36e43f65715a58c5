"""Charts show the values of their tables."""

from __future__ import annotations

import os
from typing import Any

import pandas
import polars
import pyarrow
import pytest

import stripewise
from stripewise import plot

os.environ["MPLBACKEND"] = "agg"

from matplotlib import pyplot  # noqa: E402


@pytest.fixture(autouse=True)
def closed() -> Any:
    """Figures are drawn once, and closed."""
    yield
    for number in pyplot.get_fignums():
        pyplot.figure(number).canvas.draw()
    pyplot.close("all")


def points(axes: Any) -> list[list[tuple[float, float]]]:
    return [list(zip(line.get_xdata(), line.get_ydata())) for line in axes.lines]


FIGURES = {
    "run": ["a", "a", "b"],
    "measurement": ["read", "write", "read"],
    "mb_per_s": [100.0, 50.0, 120.0],
    "iops": [10.0, 5.0, 12.0],
    "unit": ["MB/s", "MB/s", "MB/s"],
    "ci95_low": [90.0, None, 110.0],
    "ci95_high": [105.0, None, 130.0],
}


@pytest.mark.parametrize("of", [dict, pandas.DataFrame, polars.DataFrame, pyarrow.table])
def test_figures_are_bars_with_intervals(of: Any) -> None:
    axes = plot.figures(of(FIGURES))
    assert [bar.get_height() for bar in axes.patches] == [100, 50, 120]
    [first, second] = [
        segments for container in axes.collections for segments in [container.get_segments()]
    ]
    assert [sorted(y for _, y in bar) for bar in first] == [[90, 105], [50, 50]]
    assert [sorted(y for _, y in bar) for bar in second] == [[110, 130]]
    assert axes.get_ylabel() == "throughput in MB/s"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b"]


def test_intervals_of_another_unit_are_left_out() -> None:
    axes = plot.figures(FIGURES, value="iops")
    assert [bar.get_height() for bar in axes.patches] == [10, 5, 12]
    assert not axes.collections


def test_runs_are_relative_to_their_median() -> None:
    table = {
        "run": ["a"] * 3,
        "measurement": ["read"] * 3,
        "sample": [1, 2, 3],
        "value": [180.0, 200.0, 240.0],
    }
    [found, _] = points(plot.runs(table))
    assert [y for _, y in found] == pytest.approx([90, 100, 120])


def test_latencies_fall_to_the_longest() -> None:
    table = {
        "measurement": ["read"] * 3,
        "op": ["read"] * 3,
        "high_us": [10.0, 20.0, 40.0],
        "count": [80, 15, 5],
    }
    [found] = points(plot.latencies(table))
    assert found == [(10.0, 0.2), (20.0, 0.05)]


def test_a_timeline_marks_its_events() -> None:
    axes = plot.timeline(
        {"step_seconds": 0.5, "mb_per_s": [5.0, 7.0], "markers": [{"seconds": 0.6, "what": "drive lost"}]}
    )
    assert points(axes)[0] == [(0.25, 5.0), (0.75, 7.0)]
    assert [text.get_text() for text in axes.texts] == ["drive lost"]


def test_a_sweep_is_a_line_for_each_layout() -> None:
    table = stripewise.sweep("mg08ada800e", drives=(2, 4, 6), blocks=("4K",), depths=(4,), progress=False)
    axes = plot.lines(table, x="drives", y="iops")
    assert [line.get_label() for line in axes.lines] == ["raid0", "raid5", "raid10"]
    # RAID 5 of two drives cannot be: it has no point.
    assert [[x for x, _ in line] for line in points(axes)] == [[2, 4, 6], [4, 6], [2, 4, 6]]
    assert axes.get_ylabel() == "requests per second"


def test_predictions_lie_beside_the_published() -> None:
    rows = stripewise.validate("002")["rows"]
    axes = plot.published(rows)
    drawn = sum(len(line) for line in points(axes)[:-1])
    assert drawn == sum(1 for value in rows["predicted"] if value)


def test_differences_have_the_colour_of_their_verdict() -> None:
    found: Any = {
        "first": "a",
        "second": "b",
        "comparisons": [
            {"measurement": "read", "ratio": 0.8, "ci95": [0.7, 0.9], "verdict": "worse"},
            {"measurement": "write", "ratio": 1.0, "ci95": None, "verdict": "cannot_tell"},
        ],
    }
    axes = plot.differences(found)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["write", "read"]
    colours = [line.get_color() for line in axes.lines]
    assert colours.count(plot.COLOURS[4]) == 2 and colours.count(plot.COLOURS[5]) == 1
    assert axes.get_xlabel() == "b / a"


def test_charts_are_drawn_on_given_axes() -> None:
    _, axes = pyplot.subplots()
    assert plot.figures(FIGURES, axes=axes) is axes


def test_a_table_without_the_columns_is_refused() -> None:
    for draw in (plot.figures, plot.runs, plot.latencies, plot.published):
        with pytest.raises(stripewise.RequestError, match="has no column") as error:
            draw(stripewise.sweep("mg08ada800e", drives=(), progress=False))
        assert error.value.hint
