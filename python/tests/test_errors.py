"""Errors say what to do, and arguments are checked."""

from __future__ import annotations

from typing import Any, Callable

import pytest

import stripewise
from stripewise._sizes import size_bytes

DRIVES = "4xmg08ada800e"
REFUSED: list[tuple[Callable[[], Any], str, str]] = [
    (lambda: stripewise.predict(drives="4xmg08ada800", layout="raid5"), "no drive `mg08ada800`", "catalogue"),
    (lambda: stripewise.predict(drives="2xmg08ada800e", layout="raid6"), "cannot be `raid6`", "drives"),
    (lambda: stripewise.predict(), "either a system", "predict("),
    (lambda: stripewise.predict("none"), "no system `none`", "catalogue"),
    (lambda: stripewise.predict(drives=DRIVES), "without a layout", "raid5"),
    (lambda: stripewise.predict(drives=DRIVES, layout="raid0", state="degraded"), "no redundancy", "state"),
    (lambda: stripewise.predict(drives=DRIVES, layout="raid0", state="ill"), "no state", "degraded"),
    (lambda: stripewise.predict(drives=DRIVES, layout="raid0", pattern="x"), "pattern `x`", "mixed"),
    (lambda: stripewise.predict(drives=DRIVES, layout="raid0", profile="x"), "cannot predict `x`", "toshiba"),
    (lambda: stripewise.predict(drives=DRIVES, layout="raid0", pattern="mixed", block=100), "512", "4K"),
    (lambda: stripewise.predict(drives=DRIVES, layout="raid0", block="4Q"), "not a size", "64KiB"),
    (lambda: stripewise.sweep("none"), "no drive `none`", "catalogue"),
    (lambda: stripewise.sweep("mg08ada800e", depths=(0,)), "depth is 0", "at least 1"),
    (lambda: stripewise.sweep("mg08ada800e", read_shares=(2,)), "read_share is 2", "0 to 1"),
    (lambda: stripewise.sweep("mg08ada800e", threads=0), "threads is 0", "at least 1"),
    (lambda: stripewise.reliability("raid9", 4), "raid9", ""),
    (lambda: stripewise.reliability("raid5", 4, failure="normal:1"), "not a law", "docs/python.md"),
    (lambda: stripewise.reliability("raid5", 4, failure="fixed:9", mttf_hours=9), "both", "one of them"),
    (lambda: stripewise.reliability("raid5", 4, years=0), "years is 0", "above 0"),
    (lambda: stripewise.reliability("raid5", 1), "raid5", ""),
    (lambda: stripewise.advise(), "no drives to advise on", "bays"),
    (lambda: stripewise.advise("4x8TB-hdd", workload="sequental"), "sequental", "sequential"),
    (lambda: stripewise.advise("4x8TB-hdd", risk_per_year=2), "risk_per_year is 2", "0 to 1"),
    (lambda: stripewise.advise("4x8TB-hdd", prices={"4TB-hdd": 1}), "matches none", "8tb-hdd"),
    (lambda: stripewise.validate("005"), "005", "004"),
    (lambda: stripewise.catalogue("none"), "no drive `none`", "catalogue()"),
]


@pytest.mark.parametrize(("call", "message", "hint"), REFUSED)
def test_invalid_arguments_are_refused_with_a_hint(call: Callable[[], Any], message: str, hint: str) -> None:
    with pytest.raises(stripewise.RequestError) as error:
        call()
    assert message in error.value.message
    assert hint in error.value.hint
    assert isinstance(error.value, ValueError)


def test_a_requirement_that_nothing_meets_names_the_nearest() -> None:
    with pytest.raises(stripewise.Error, match="hint: ") as error:
        stripewise.advise("4x8TB-hdd", capacity="100TB", progress=False)
    assert not isinstance(error.value, stripewise.RequestError)


def test_values_of_another_type_are_refused() -> None:
    for call in [
        lambda: stripewise.predict(drives=DRIVES, layout="raid5", depth="deep"),  # type: ignore[arg-type]
        lambda: stripewise.sweep("mg08ada800e", blocks=(4.5,)),  # type: ignore[arg-type]
        lambda: stripewise.sweep("mg08ada800e", drives=(4.5,)),  # type: ignore[arg-type]
    ]:
        with pytest.raises(TypeError):
            call()


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096), ("64K", 65536), ("64KiB", 65536), ("64 kb", 64000), ("1.1TB", 1_100_000_000_000),
        ("2.7GiB", 2_899_102_924), ("1b", 1), (7, 7),
    ],
)  # fmt: skip
def test_sizes_have_the_units_of_the_command_line(text: str, size: int) -> None:
    assert size_bytes("block", text) == size


@pytest.mark.parametrize("text", ["", "K", "4.K", "-4K", "4iB", "4 KK", "1.5", "99E", "16EiB", "٤K", -1])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(stripewise.RequestError):
        size_bytes("block", text)
