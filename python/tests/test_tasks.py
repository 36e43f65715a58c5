"""Work that is cut into tasks: any workers, in any order, give the answer of one process."""

from __future__ import annotations

import random
from typing import Any, Callable, Sequence

import pyarrow
import pytest

import stripewise
from stripewise import _engine, _native, _tasks
from stripewise.ray import Cluster


class Workers:
    """Workers that are done in a random order, and some of whose tasks are done twice."""

    def __init__(self, seed: int, processors: int) -> None:
        self.random = random.Random(seed)
        self.count = processors
        self.tasks: list[tuple[int, int]] = []
        self.flying: list[tuple[int, int]] = []
        self.repeated = 0

    def __call__(self, task: Callable[..., Any], *arguments: Any) -> Workers:
        self.task = lambda first, end: task(*arguments, first, end)
        return self

    def processors(self) -> int:
        # Nodes come and go.
        return self.random.randint(1, self.count)

    def submit(self, first: int, end: int) -> tuple[int, int]:
        self.tasks.append((first, end))
        self.flying.append((first, end))
        return first, end

    def wait(self) -> Any:
        handle = self.flying.pop(self.random.randrange(len(self.flying)))
        if self.random.random() < 0.3:
            # The worker is killed after its work: its result is lost, the task repeated.
            self.task(*handle)
            self.repeated += 1
        _, result = self.task(*handle)
        # Any speed: the cut changes, the answer does not.
        seconds = (handle[1] - handle[0]) * 10 ** self.random.uniform(-2.5, 0)
        return handle, seconds, result

    def cancel(self, handles: Sequence[Any]) -> None:
        assert not handles


GRID: dict[str, Any] = {"drives": (2, 4, 6), "blocks": ("4K",), "depths": (1, 4), "progress": False}


def test_a_sweep_is_that_of_one_process() -> None:
    whole = pyarrow.table(stripewise.sweep("mg08ada800e", seed=5, **GRID))
    for seed, processors in [(1, 1), (3, 16)]:
        workers = Workers(seed, processors)
        with _engine.use(Cluster(workers)):
            table: Any = stripewise.sweep("mg08ada800e", seed=5, **GRID)
        assert isinstance(_engine.current(), _engine.Engine) and not isinstance(_engine.current(), Cluster)
        assert table.equals(whole)
        assert table.schema.equals(whole.schema, check_metadata=True)
        assert len(workers.tasks) > 3 and workers.repeated


def test_an_empty_sweep_has_its_columns() -> None:
    with _engine.use(Cluster(Workers(1, 2))):
        table: Any = stripewise.sweep("mg08ada800e", drives=(), progress=False)
    assert table.equals(pyarrow.table(stripewise.sweep("mg08ada800e", drives=(), progress=False)))


@pytest.mark.parametrize("options", [{"max_trials": 20_000}, {"ure": 1e-14, "max_trials": 6000}])
def test_an_estimate_is_that_of_one_process(options: dict[str, Any]) -> None:
    whole = stripewise.reliability("raid6", 8, seed=3, progress=False, **options)
    for seed, processors in [(2, 2), (3, 40)]:
        workers = Workers(seed, processors)
        with _engine.use(Cluster(workers)):
            assert stripewise.reliability("raid6", 8, seed=3, progress=False, **options) == whole
        assert len(workers.tasks) > 1


def test_torture_is_that_of_one_process() -> None:
    whole = stripewise.torture(seed=1, runs=3, progress=False)
    assert whole["runs"] == 3 and whole["failures"] == []
    workers = Workers(4, 3)
    with _engine.use(Cluster(workers)):
        assert stripewise.torture(seed=1, runs=3, progress=False) == whole
    assert len(workers.tasks) > 1


def test_requests_are_refused_as_in_one_process() -> None:
    for call in [
        lambda: stripewise.sweep("none", progress=False),
        lambda: stripewise.reliability("raid9", 4, progress=False),
        lambda: stripewise.torture(runs=0, progress=False),
        lambda: stripewise.torture(focus="none", progress=False),
    ]:
        with pytest.raises(stripewise.RequestError) as alone:
            call()
        with pytest.raises(stripewise.RequestError) as apart, _engine.use(Cluster(Lone())):
            call()
        assert str(apart.value) == str(alone.value)


class Lone(Workers):
    """A worker whose tasks may fail."""

    def __init__(self) -> None:
        super().__init__(1, 1)

    def cancel(self, handles: Sequence[Any]) -> None:
        self.flying.clear()


def test_sums_of_other_blocks_are_refused() -> None:
    request = requested()
    rounds = _native.Rounds(request, False)
    first, end = rounds.next_blocks() or (0, 0)
    sums = _native.reliability_blocks(request, False, (first, end))
    assert len(sums) % (end - first) == 0
    for wrong in (b"", sums[:-1], sums + sums):
        with pytest.raises(stripewise.RequestError, match="are not the sums"):
            rounds.add(wrong)
    assert rounds.trials() == (0, 0)
    rounds.add(sums)
    assert rounds.trials()[0] > 0
    with pytest.raises(stripewise.RequestError, match="second question"):
        _native.Rounds(request, True)


def requested() -> dict[str, Any]:
    """The completed request of an estimate."""
    kept: list[dict[str, Any]] = []

    class Keep(_engine.Engine):
        def reliability(self, request: dict[str, Any], report: Any) -> Any:
            kept.append(request)

    with _engine.use(Keep()):
        stripewise.reliability("raid5", 6, progress=False)
    return kept[0]


class Clock:
    """Workers in simulated time, of three speeds."""

    def __init__(self, processors: int, cost: float) -> None:
        self.count, self.cost = processors, cost
        self.now = 0.0
        self.free = [0.0] * processors
        self.speeds = [1 + at % 3 / 4 for at in range(processors)]
        self.ends: dict[tuple[int, int], float] = {}
        self.seconds: dict[tuple[int, int], float] = {}
        self.lengths: list[float] = []

    def processors(self) -> int:
        return self.count

    def submit(self, first: int, end: int) -> tuple[int, int]:
        at = min(range(self.count), key=self.free.__getitem__)
        self.lengths.append((end - first) * self.cost / self.speeds[at])
        self.free[at] = max(self.free[at], self.now) + self.lengths[-1]
        self.ends[first, end] = self.free[at]
        self.seconds[first, end] = self.lengths[-1]
        return first, end

    def wait(self) -> tuple[Any, float, int]:
        handle = min(self.ends, key=self.ends.__getitem__)
        self.now = max(self.now, self.ends.pop(handle))
        return handle, self.seconds.pop(handle), handle[1] - handle[0]

    def cancel(self, handles: Sequence[Any]) -> None:
        assert not handles


@pytest.mark.parametrize(("processors", "cost"), [(1, 0.001), (8, 0.003), (64, 0.0001)])
def test_tasks_take_about_a_second(processors: int, cost: float) -> None:
    workers = Clock(processors, cost)
    pieces = int(20.5 * processors / cost)
    done = _tasks.gather(workers, _tasks.Splitter(), 0, pieces)
    assert sum(done) == pieces
    usual = sorted(workers.lengths)[len(workers.lengths) // 2]
    assert 0.5 <= usual <= 1.5 and max(workers.lengths) <= 2
    # All processors end at a time.
    assert workers.now <= 1.03 * pieces * cost / sum(workers.speeds)


def test_tasks_of_many_processors_are_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    # As slow as if there were a hundred times as many processors.
    monkeypatch.setattr(_tasks, "HANDLING_SECONDS", 100 * _tasks.HANDLING_SECONDS)
    workers = Clock(64, 0.01)
    _tasks.gather(workers, _tasks.Splitter(), 0, 1_000_000)
    usual = sorted(workers.lengths)[len(workers.lengths) // 2]
    assert usual == pytest.approx(6400 * _tasks.AHEAD * _tasks.HANDLING_SECONDS / 100, rel=0.1)


def test_progress_counts_pieces() -> None:
    seen: list[tuple[int, int]] = []
    _tasks.gather(Clock(3, 0.1), _tasks.Splitter(), 5, 105, lambda done, total: seen.append((done, total)))
    assert seen[-1] == (100, 100) and seen == sorted(seen)


def test_an_error_cancels_the_other_tasks() -> None:
    class Broken(Clock):
        cancelled = 0

        def wait(self) -> tuple[Any, float, int]:
            raise RuntimeError("enough")

        def cancel(self, handles: Sequence[Any]) -> None:
            self.cancelled = len(handles)

    workers = Broken(4, 0.1)
    with pytest.raises(RuntimeError, match="enough"):
        _tasks.gather(workers, _tasks.Splitter(), 0, 100)
    assert workers.cancelled == 4
