"""A range of numbered work, cut into tasks of about a second and gathered in order.

The cut depends on measured times; the answer does not, since each number's work depends on the
number alone and results are merged in the order of the numbers. A task that is done twice, or by
another worker, has the same result.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Protocol, Sequence, Tuple, TypeVar

from ._engine import Report

__all__ = ["Executor", "Splitter", "gather"]

Handle = TypeVar("Handle")
Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)

#: Length of a task.
TASK_SECONDS = 1.0
#: Time that a task costs the process that hands it out, to submit it and to take its result:
#: 1.1 ms were measured (docs/cluster.md). On clusters where one process cannot feed all processors
#: with tasks of a second, tasks are longer.
HANDLING_SECONDS = 0.001
#: Tasks in flight for each processor: one runs, one waits.
AHEAD = 2
#: Tasks of one piece that are made first, to learn what a piece costs.
PROBES = 4


class Executor(Protocol[Handle, Result_co]):
    """Workers that do tasks, each of them at least once, in any order."""

    def processors(self) -> int:
        """Number of workers at the moment."""
        ...

    def submit(self, first: int, end: int) -> Handle:
        """Start a task."""
        ...

    def wait(self) -> Tuple[Handle, float, Result_co]:
        """A task that is done, with its seconds on the worker."""
        ...

    def cancel(self, handles: Sequence[Handle]) -> None:
        """Stop tasks whose results are not needed."""
        ...


class Splitter:
    """Cuts a range into tasks of about a second, as far as it knows the cost of a piece."""

    def __init__(self) -> None:
        self._cost: Optional[float] = None
        self._next = self._end = 0

    def ahead(self, processors: int) -> int:
        """Number of tasks to have in flight."""
        return min(PROBES, processors) if self._cost is None else AHEAD * processors

    def begin(self, first: int, end: int) -> None:
        """Begin a range. What is known of the cost stays."""
        self._next, self._end = first, end

    def take(self, processors: int) -> Optional[Tuple[int, int]]:
        """First and end of the next task; `None` at the end of the range."""
        left = self._end - self._next
        if left <= 0:
            return None
        if self._cost is None:
            count = 1
        else:
            seconds = max(TASK_SECONDS, HANDLING_SECONDS * processors * AHEAD)
            # At the end of the range tasks are shorter, so that all processors end at a time.
            fair = max(left * self._cost / processors, seconds / 10)
            count = max(1, int(min(seconds, fair) / self._cost))
        first = self._next
        self._next += min(count, left)
        return first, self._next

    def learn(self, count: int, seconds: float) -> None:
        """Note the time that a task of `count` pieces took."""
        cost = max(seconds / count, 1e-9)
        self._cost = cost if self._cost is None else 0.8 * self._cost + 0.2 * cost


def gather(
    executor: Executor[Handle, Result],
    splitter: Splitter,
    first: int,
    end: int,
    report: Report = None,
) -> List[Result]:
    """The results of all tasks of a range, in the order of the range."""
    splitter.begin(first, end)
    flying: Dict[Handle, Tuple[int, int]] = {}
    results: Dict[int, Result] = {}
    done = 0
    try:
        while True:
            processors = max(executor.processors(), 1)
            while len(flying) < splitter.ahead(processors):
                task = splitter.take(processors)
                if task is None:
                    break
                flying[executor.submit(*task)] = task
            if not flying:
                return [results[start] for start in sorted(results)]
            handle, seconds, result = executor.wait()
            start, stop = flying.pop(handle)
            splitter.learn(stop - start, seconds)
            results[start] = result
            done += stop - start
            if report is not None:
                report(done, end - first)
    finally:
        executor.cancel(list(flying))
