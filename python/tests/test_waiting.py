"""Calls that take long: interrupts, other threads, progress."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import pytest

import stripewise

#: Seconds within which an interrupt ends a call.
LIMIT = 0.1
#: A busy machine may hold up any call; one of so many has to meet its limit.
TRIES = 10
#: A sweep of minutes.
LONG: dict[str, Any] = {"drives": range(4, 200), "blocks": ("4K", "64K"), "depths": range(1, 64)}


def seconds_to_interrupt(call: Any, *arguments: Any, **options: Any) -> float:
    """Seconds from an interrupt to the end of the call that it ends."""
    sent = 0.0

    def interrupt(number: int, frame: object) -> None:
        nonlocal sent
        sent = time.monotonic()
        raise KeyboardInterrupt

    # The handler runs when the call looks for signals; the clock starts when the signal is sent.
    due = time.monotonic() + 0.5
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            call(*arguments, **options)
        assert sent
        return time.monotonic() - due
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def wait_until_idle() -> None:
    """Returns once the process uses no processor; what was begun is finished first."""

    def spent_in_half_a_second() -> float:
        before = time.process_time()
        time.sleep(0.5)
        return time.process_time() - before

    deadline = time.monotonic() + 20
    while spent_in_half_a_second() > 0.1:
        assert time.monotonic() < deadline, "the work goes on"


def test_an_interrupt_stops_a_sweep_within_100_ms() -> None:
    def once() -> float:
        return seconds_to_interrupt(stripewise.sweep, "mg08ada800e", progress=False, **LONG)

    assert any(once() < LIMIT for _ in range(TRIES))


def test_an_interrupted_sweep_leaves_the_processor() -> None:
    seconds_to_interrupt(stripewise.sweep, "mg08ada800e", progress=False, **LONG)
    wait_until_idle()


def test_an_interrupt_stops_an_estimate() -> None:
    long = {"precision_percent": 0.01, "mttf_hours": 1e5, "mttr_hours": 24, "progress": False}
    calls = (seconds_to_interrupt(stripewise.reliability, "raid6", 60, **long) for _ in range(TRIES))
    assert any(seconds < 5 * LIMIT for seconds in calls)
    wait_until_idle()


def test_an_interrupt_stops_advice() -> None:
    calls = (seconds_to_interrupt(stripewise.advise, "60x8TB-hdd", progress=False) for _ in range(TRIES))
    assert any(seconds < 5 * LIMIT for seconds in calls)


def test_an_interrupt_stops_torture() -> None:
    calls = (seconds_to_interrupt(stripewise.torture, 1, 100_000, progress=False) for _ in range(TRIES))
    assert any(seconds < 5 * LIMIT for seconds in calls)


def test_other_threads_run_during_a_sweep() -> None:
    ended = threading.Event()
    counted = 0

    def count() -> None:
        nonlocal counted
        while not ended.is_set():
            counted += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    before = counted
    stripewise.sweep("mg08ada800e", depths=(32,), threads=1, progress=False)
    after = counted
    ended.set()
    thread.join()
    assert after - before > 10


def test_progress_ends_with_all_points() -> None:
    seen: list[tuple[int, int]] = []
    table = stripewise.sweep(
        "mg08ada800e", blocks=("4K",), progress=lambda done, total: seen.append((done, total))
    )
    assert seen[-1] == (len(table), len(table))
    assert seen == sorted(seen)


def test_an_exception_of_the_progress_ends_the_call() -> None:
    def refuse(done: int, total: int) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        stripewise.sweep("mg08ada800e", progress=refuse, **LONG)


def test_a_bar_of_tqdm_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    stripewise.sweep("mg08ada800e", drives=range(4, 7), depths=(32,), progress=True)
    assert "predicting" in capsys.readouterr().err
