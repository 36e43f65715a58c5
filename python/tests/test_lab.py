"""The result store: tables agree with the command line's documents."""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from pathlib import Path
from typing import Any, Iterator

import pytest

import stripewise
from conftest import CommandLine
from stripewise import lab

METHOD = """
name = "short"
tool = "none"
about = "Two loads of a tenth of a second"
runs = 5
statistic = "median"
seconds = 0.1
order = "as-given"

[[measurement]]
name = "short_read"
ops = ["read"]
pattern = "sequential"
blocks = ["64KiB"]
depths = [4]

[[measurement]]
name = "short_mixed"
read_percents = [50]
pattern = "random"
blocks = ["4KiB"]
depths = [4]
"""


def rows(table: stripewise.Table) -> list[dict[str, Any]]:
    columns = table.to_pydict()
    return [dict(zip(columns, row)) for row in zip(*columns.values())]


@pytest.fixture(scope="module")
def measured(
    command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[dict[str, Any]]]:
    """Two measured runs, the older first, after one of a model, in the store of STRIPEWISE_HOME."""
    home = tmp_path_factory.mktemp("home")
    method = home / "short.toml"
    method.write_text(METHOD)
    before = os.environ.get("STRIPEWISE_HOME")
    os.environ["STRIPEWISE_HOME"] = str(home)
    try:
        command_line("lab", "run", "model:mg08ada800e", "--profile", "toshiba")
        with open(home / "file", "wb") as file:
            file.truncate(8 << 20)
        options = ("--profile", str(method), "--size", "4MiB", "--force")
        yield [command_line("lab", "run", str(home / "file"), *options) for _ in range(2)]
    finally:
        del os.environ["STRIPEWISE_HOME"]
        if before is not None:
            os.environ["STRIPEWISE_HOME"] = before


def test_runs_are_those_of_the_command_line(
    measured: list[dict[str, Any]], command_line: CommandLine
) -> None:
    assert rows(lab.runs()) == command_line("lab", "list")["runs"]
    assert lab.runs()["run"] == [measured[1]["run"], measured[0]["run"], lab.runs()["run"][2]]


def test_a_run_is_that_of_the_command_line(measured: list[dict[str, Any]]) -> None:
    assert lab.run() == measured[1]
    assert lab.run(measured[0]["run"][:-1]) == measured[0]


def test_measurements_have_the_figures_of_each_run(measured: list[dict[str, Any]]) -> None:
    found = rows(lab.measurements(measured[0]["run"], measured[1]["run"]))
    expected = [(run["run"], figure) for run in measured for figure in run["measurements"]]
    assert [(row["run"], row["measurement"]) for row in found] == [
        (run, figure["name"]) for run, figure in expected
    ]
    for row, (_, figure) in zip(found, expected):
        for name in ("op", "block_bytes", "queue_depth", "workers", "mb_per_s", "iops"):
            assert row[name] == figure[name]
        for name, value in figure["latency_us"].items():
            assert row[f"latency_{name}_us"] == value
        assert [row["ci95_low"], row["ci95_high"]] == figure["ci95"]
        assert row["runs"] == len(figure["runs"]) == 5
        assert row["valid"] == all(figure["badges"].values())
    assert set(lab.measurements()["run"]) == set(lab.runs()["run"])


def test_samples_are_the_runs_of_each_figure(measured: list[dict[str, Any]]) -> None:
    found = rows(lab.samples("latest"))
    values = defaultdict(list)
    for row in found:
        values[row["measurement"]].append(row["value"])
        assert row["sample"] == len(values[row["measurement"]])
        assert row["unit"] == "MB/s" and row["errors"] == 0
        assert row["bytes"] / row["seconds"] / 1e6 == pytest.approx(row["value"])
    assert values == {figure["name"]: figure["runs"] for figure in measured[1]["measurements"]}


def test_histograms_count_every_request(measured: list[dict[str, Any]]) -> None:
    requests = {(row["measurement"], row["sample"]): row["requests"] for row in rows(lab.samples("latest"))}
    counted: dict[tuple[str, int], int] = defaultdict(int)
    ops = defaultdict(set)
    for row in rows(lab.histograms("latest")):
        assert row["low_us"] <= row["high_us"] <= row["low_us"] * 1.002 + 0.001
        counted[row["measurement"], row["sample"]] += row["count"]
        ops[row["measurement"]].add(row["op"])
    assert counted == requests
    assert ops == {"short_read": {"read"}, "short_mixed": {"read", "write"}}


def test_the_slowest_class_holds_the_longest_latency(measured: list[dict[str, Any]]) -> None:
    longest = {figure["name"]: figure["latency_us"]["max"] for figure in measured[1]["measurements"]}
    for name, latency in longest.items():
        slowest = max(
            row["high_us"] for row in rows(lab.histograms("latest")) if row["measurement"] == name
        )
        assert slowest == pytest.approx(latency, rel=0.002)


def test_seconds_add_up_to_their_sample(measured: list[dict[str, Any]]) -> None:
    modelled = lab.runs()["run"][2]
    whole = {(row["measurement"], row["sample"]): row["bytes"] for row in rows(lab.samples(modelled))}
    found: dict[tuple[str, int], int] = defaultdict(int)
    for row in rows(lab.seconds(modelled)):
        found[row["measurement"], row["sample"]] += row["bytes"]
        assert row["latency_mean_us"] <= row["latency_max_us"]
    assert found == pytest.approx(whole, rel=0.15)


def test_compare_answers_as_the_command_line(
    measured: list[dict[str, Any]], command_line: CommandLine
) -> None:
    names = [run["run"] for run in measured]
    found = lab.compare(*names)
    assert found == command_line("lab", "compare", *names)
    for difference in found["comparisons"]:
        assert difference["ci95"] is not None
        assert difference["ci95"][0] <= difference["ratio"] <= difference["ci95"][1]


def test_imports_have_values_without_windows(
    command_line: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRIPEWISE_HOME", str(tmp_path))
    (tmp_path / "table.csv").write_text("array,mb_per_s\nraid5,100\nraid6,80.5\n")
    run = command_line("lab", "import", str(tmp_path / "table.csv"))
    found = rows(lab.samples())
    assert [row["value"] for row in found] == [100, 80.5]
    assert {row["seconds"] for row in found} == {None}
    assert len(lab.histograms()) == 0 == len(lab.seconds())
    store = Path(os.environ["STRIPEWISE_HOME"]) / "lab.sqlite"
    monkeypatch.delenv("STRIPEWISE_HOME")
    assert lab.run(store=store) == run


def test_the_default_store_is_that_of_the_command_line(
    command_line: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(stat.S_IRWXU)
    if os.geteuid() != 0:
        monkeypatch.delenv("STRIPEWISE_HOME", raising=False)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        command_line("lab", "list")
        assert (tmp_path / "stripewise/lab.sqlite").exists()
    else:
        monkeypatch.setenv("STRIPEWISE_HOME", str(tmp_path))
        command_line("lab", "list")
    assert len(lab.runs()) == 0


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(stripewise.Error, match="there is no result store") as error:
        lab.runs(store=tmp_path / "none.sqlite")
    assert "lab run" in error.value.hint
    assert list(tmp_path.iterdir()) == []


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("this is a letter to a friend, not a database. " * 200)
    with pytest.raises(stripewise.Error, match="not a database") as error:
        lab.runs(store=tmp_path / "letter")
    assert "move the file away" in error.value.hint


def test_unknown_runs_are_refused(measured: list[dict[str, Any]]) -> None:
    for call in (lab.run, lab.samples, lab.compare):
        with pytest.raises(stripewise.RequestError, match="there is no run `none`") as error:
            call("none")
        assert "lab.runs()" in error.value.hint


def test_runs_of_different_methods_have_nothing_to_compare(measured: list[dict[str, Any]]) -> None:
    with pytest.raises(stripewise.RequestError, match="no measurement in common") as error:
        lab.compare(measured[0]["run"], lab.runs()["run"][2])
    assert "same method" in error.value.hint
