"""The package's answers are those of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

import stripewise
from conftest import ROOT, CommandLine


def without(document: dict, *names: str) -> dict:
    return {name: value for name, value in document.items() if name not in names}


def test_predict_answers_as_the_command_line(command_line: CommandLine) -> None:
    expected = command_line(
        "model", "predict", "--drives", "4xmg08ada800e", "--layout", "raid5", "--state", "degraded",
        "--pattern", "mixed", "--block", "64K", "--read-share", "0.7", "--link", "10gbe",
    )  # fmt: skip
    found = stripewise.predict(
        drives="4xmg08ada800e",
        layout="raid5",
        state="degraded",
        pattern="mixed",
        block="64K",
        read_share=0.7,
        link="10gbe",
    )
    assert without(dict(found), "measurements", "name") == expected
    assert found["measurements"][0]["name"] == "mixed"


def test_predict_takes_all_loads_of_a_method(command_line: CommandLine) -> None:
    expected = command_line("model", "predict", "--drives", "8xx25e", "--layout", "raid10",
                            "--profile", "crystaldiskmark")  # fmt: skip
    found = stripewise.predict(drives="8xx25e", layout="raid10", profile="crystaldiskmark")
    assert len(found["measurements"]) > 1
    assert found["measurements"] == expected["measurements"]
    assert found["rebuild_seconds"] == expected["rebuild_seconds"]


def test_sweep_answers_as_the_command_line(command_line: CommandLine) -> None:
    expected = command_line(
        "model", "sweep", "--drive", "mg08ada800e", "--drives", "2,4", "--layouts", "raid0,raid5",
        "--blocks", "4K,1M", "--depths", "1,8", "--seed", "7",
    )  # fmt: skip
    table = stripewise.sweep(
        "mg08ada800e",
        drives=(2, 4),
        layouts=("raid0", "raid5"),
        blocks=("4K", "1M"),
        depths=(1, 8),
        seed=7,
        progress=False,
    )
    columns = table.to_pydict()
    assert table.column_names == list(expected["points"][0])
    assert [dict(zip(columns, row)) for row in zip(*columns.values())] == expected["points"]
    # RAID 5 of two drives cannot be: its figures are missing, and the reason is there.
    assert None in columns["iops"]


def test_sweep_does_not_depend_on_the_threads() -> None:
    grid = {"drives": (4, 6), "blocks": ("64K",), "depths": (4,), "progress": False}
    alone = stripewise.sweep("mg08ada800e", threads=1, **grid)  # type: ignore[arg-type]
    assert alone == stripewise.sweep("mg08ada800e", threads=3, **grid)  # type: ignore[arg-type]
    assert alone != stripewise.sweep("mg08ada800e", seed=2, **grid)  # type: ignore[arg-type]


def test_reliability_answers_as_the_command_line(command_line: CommandLine) -> None:
    expected = command_line(
        "model", "reliability", "--layout", "raid5", "--drives", "8", "--years", "5", "--ure", "1e-14",
        "--scrub", "336", "--latent", "none", "--batch", "0.05:10", "--precision", "10", "--seed", "3",
        "--max-trials", "100000",
    )  # fmt: skip
    found = stripewise.reliability(
        "raid5",
        8,
        years=5,
        ure=1e-14,
        scrub=336,
        latent="none",
        batch="0.05:10",
        precision_percent=10,
        seed=3,
        max_trials=100_000,
        progress=False,
    )
    assert without(dict(found), "on") == expected


def test_reliability_of_stacked_arrays_names_the_lower(command_line: CommandLine) -> None:
    expected = command_line("model", "reliability", "--layout", "raid1", "--drives", "2", "--on", "raid5:4",
                            "--mttf-hours", "1e4", "--mttr-hours", "240", "--max-trials", "4000")  # fmt: skip
    found = stripewise.reliability(
        "raid1", 2, on="raid5:4", mttf_hours=1e4, mttr_hours=240, max_trials=4000, progress=False
    )
    assert without(dict(found), "read_errors") == expected
    assert found["on"] == "raid5 of 4"


def test_advise_answers_as_the_command_line(command_line: CommandLine, tmp_path: Path) -> None:
    expected = command_line("advise", "--drives", "4x8TB-hdd", "--workload", "sequential", "--link", "10gbe")
    report = tmp_path / "advice.html"
    found = stripewise.advise(
        "4x8TB-hdd", workload="sequential", link="10gbe", report=report, progress=False
    )
    assert found == expected
    assert found["choices"][0]["layout"] in report.read_text()


def test_advise_buys_within_a_budget(command_line: CommandLine) -> None:
    expected = command_line("advise", "--price", "8TB-hdd=150", "--budget", "700", "--capacity", "16TB",
                            "--risk", "1%")  # fmt: skip
    found = stripewise.advise(
        prices={"8TB-hdd": 150}, budget=700, capacity="16TB", risk_per_year=0.01, progress=False
    )
    assert found == expected


def test_catalogue_answers_as_the_command_line(command_line: CommandLine) -> None:
    assert stripewise.catalogue() == command_line("model", "catalogue")["drives"]
    assert [drive["name"] for drive in stripewise.catalogue("x25e")] == ["x25e"]


def test_validate_answers_every_published_row() -> None:
    found = stripewise.validate("002")
    rows = found["rows"]
    assert len(rows) == sum(table["rows"] for table in found["tables"])
    assert set(rows["study"]) == {"002"}
    assert found["studies"][0]["median_error_percent"] == found["median_error_percent"]
    assert any(rows["fitted"]) and not all(rows["fitted"])
    assert found["left_out"] == []


def test_validate_leaves_out_as_the_command_line(command_line: CommandLine) -> None:
    found = stripewise.validate("001", leave_out=True)
    assert found["left_out"] == command_line("model", "validate", "--study", "001", "--leave-out")["left_out"]
    assert [one["one_of"] for one in found["left_out"]] == ["system", "layout"]


def test_replay_answers_as_the_command_line(command_line: CommandLine, tmp_path: Path) -> None:
    drive, trace = (ROOT / "studies" / "disksim" / name for name in ("atlas10k.json", "atlas10k.trace.csv"))
    expected = command_line("model", "replay", "--drive", str(drive), str(trace), "--seed", "2")
    assert stripewise.replay(drive, str(trace), seed=2) == expected
    with pytest.raises(stripewise.Error, match="cannot read") as error:
        stripewise.replay(tmp_path / "none.json", trace)
    assert "studies/disksim" in error.value.hint
