"""Sweeps, estimates and torture on a Ray cluster (`pip install 'stripewise[ray]'`).

>>> import ray, stripewise.ray  # doctest: +SKIP
>>> ray.init("auto")  # doctest: +SKIP
>>> stripewise.ray.sweep("mg08ada800e", drives=range(4, 100)).to_pandas()  # doctest: +SKIP

The functions have the arguments of those in `stripewise`, and their answers are the same to the
last bit, whatever the number of workers, also when workers are killed and tasks repeated. `threads`
is not used: a task runs on one processor for about a second. Every node needs this package; where
no cluster is connected, Ray starts one on this machine. `docs/cluster.md` has the scaling.
"""

from __future__ import annotations

import functools
import json
import time
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Callable, Dict, Sequence, Tuple, TypeVar, cast

from . import _engine, _models, _native
from ._engine import Engine, Report, Request
from ._errors import Error
from ._tasks import Executor, Splitter, gather
from ._types import Reliability, Torture

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")

__all__ = ["reliability", "sweep", "torture"]

Answer = TypeVar("Answer")
#: Seconds on the worker, and the result.
Done = Tuple[float, Any]

#: Times that a task is repeated whose worker or node is lost.
_REPEATS = 20
#: Time between two looks for an interrupt.
_TURN_SECONDS = 0.1


def _timed(work: Callable[[], Any]) -> Done:
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def sweep_task(request: Request, first: int, end: int) -> Done:
    """Predicts a range of points: an Arrow table."""
    return _timed(lambda: _native.sweep({**request, "threads": 1}, None, (first, end)).to_pyarrow())


def blocks_task(request: Request, is_field: bool, first: int, end: int) -> Done:
    """Makes blocks of trials: their sums."""
    return _timed(lambda: _native.reliability_blocks(request, is_field, (first, end)))


def torture_task(request: Request, first: int, end: int) -> Done:
    """Runs consecutive seeds: the document of `torture`."""
    asked = {**request, "seed": (request["seed"] + first) % 2**64, "runs": end - first, "threads": 1}
    return _timed(lambda: json.loads(_native.torture(asked, None)))


#: Workers for a task, given its first arguments.
Workers = Callable[..., "Executor[Any, Any]"]


class Cluster(Engine):
    """An engine whose tasks go to workers, and are merged here."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    def sweep(self, request: Request, report: Report) -> Any:
        """A table of predictions, of pyarrow."""
        import pyarrow  # type: ignore[import-untyped, import-not-found, unused-ignore]

        points = _native.sweep_points(request)
        tables = gather(self._workers(sweep_task, request), Splitter(), 0, points, report)
        whole = pyarrow.concat_tables(tables or [_native.sweep(request, None, (0, 0)).to_pyarrow()])
        return whole.combine_chunks()

    def reliability(self, request: Request, report: Report) -> Dict[str, Any]:
        """An estimate: sums of blocks of trials come from the workers, rounds end here."""
        whole = self._estimate(request, False, report)
        field = None if request["ure"] is None else self._estimate(request, True, None)
        return cast("Dict[str, Any]", json.loads(whole.document(field)))

    def _estimate(self, request: Request, is_field: bool, report: Report) -> _native.Rounds:
        rounds = _native.Rounds(request, is_field)
        workers = self._workers(blocks_task, request, is_field)
        splitter = Splitter()
        while True:
            blocks = rounds.next_blocks()
            if blocks is None:
                return rounds
            rounds.add(b"".join(gather(workers, splitter, *blocks)))
            if report is not None:
                report(*rounds.trials())

    def torture(self, request: Request, report: Report) -> Dict[str, Any]:
        """Runs of torture: counts are added, failures sorted."""
        parts = gather(self._workers(torture_task, request), Splitter(), 0, request["runs"], report)
        if not parts:
            # No run: refused as in one process.
            return super().torture(request, report)
        failures = [failure for part in parts for failure in part["failures"]]
        return {
            "first_seed": request["seed"],
            "runs": sum(part["runs"] for part in parts),
            "failures": sorted(failures, key=lambda one: (one["seed"], one["promise"], one["detail"])),
            "coverage": {
                name: sum(part["coverage"][name] for part in parts) for name in parts[0]["coverage"]
            },
        }


class RayTasks:
    """Tasks of Ray, on one processor each."""

    def __init__(self, task: Callable[..., Done], *arguments: Any) -> None:
        ray = _ray()
        self._ray = ray
        self._arguments = [ray.put(argument) for argument in arguments]
        # A worker that is killed, or whose node is lost, is no error of the task.
        self._task = ray.remote(num_cpus=1, max_retries=_REPEATS)(task)
        self._processors, self._ask_again = 1, 0.0
        # Tasks that are done: looking through all that are in flight would take long.
        self._done: SimpleQueue[Tuple[Any, Future[Done]]] = SimpleQueue()

    def processors(self) -> int:
        """Processors of the cluster, as of the last second: nodes come and go."""
        if time.monotonic() >= self._ask_again:
            self._processors = int(self._ray.cluster_resources().get("CPU", 1))
            self._ask_again = time.monotonic() + 1.0
        return self._processors

    def submit(self, first: int, end: int) -> Any:
        """Start a task."""
        handle = self._task.remote(*self._arguments, first, end)
        handle.future().add_done_callback(lambda future: self._done.put((handle, future)))
        return handle

    def wait(self) -> Tuple[Any, float, Any]:
        """A task that is done."""
        while True:
            try:
                handle, future = self._done.get(timeout=_TURN_SECONDS)
                break
            except Empty:
                # An interrupt comes through between two looks.
                continue
        try:
            return (handle, *future.result())
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except self._ray.exceptions.RayError as error:
            raise Error(
                f"a task was lost {_REPEATS + 1} times: {error}", "the logs of the nodes tell why"
            ) from error

    def cancel(self, handles: Sequence[Any]) -> None:
        """Stop tasks."""
        for handle in handles:
            self._ray.cancel(handle)


def _ray() -> Any:
    try:
        import ray  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError:
        raise Error("Ray is not installed", "pip install 'stripewise[ray]'") from None
    if not ray.is_initialized():
        ray.init()
    return ray


def _on_cluster(local: Callable[P, Any]) -> Callable[[Callable[..., Answer]], Callable[P, Answer]]:
    """A function with the arguments of `local`, whose work runs on the cluster."""

    def decorate(function: Callable[..., Answer]) -> Callable[P, Answer]:
        def call(*arguments: Any, **options: Any) -> Answer:
            with _engine.use(Cluster(RayTasks)):
                return cast(Answer, local(*arguments, **options))

        functools.update_wrapper(call, function)
        call.__wrapped__ = local  # type: ignore[attr-defined]
        return cast("Callable[P, Answer]", call)

    return decorate


@_on_cluster(_models.sweep)
def sweep() -> Any:
    """As `stripewise.sweep`, on a Ray cluster; the answer is a `pyarrow.Table`."""


@_on_cluster(_models.reliability)
def reliability() -> Reliability:  # type: ignore[empty-body]
    """As `stripewise.reliability`, on a Ray cluster."""


@_on_cluster(_models.torture)
def torture() -> Torture:  # type: ignore[empty-body]
    """As `stripewise.torture`, on a Ray cluster."""
