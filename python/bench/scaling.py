"""Scaling of `stripewise.ray` on clusters of up to 1,000 nodes, by a simulated scheduler.

The code that cuts work into tasks and gathers results (`stripewise._tasks`) runs against workers in
simulated time. The process that hands out tasks spends `handling` seconds on each; a task reaches
its worker after `latency`, runs as long as its pieces cost, and a share of them is lost with its
worker and repeated. Both times are measured on this machine with `--measure` (Ray, two processes).

usage: scaling.py [--measure] [--handling SECONDS] [--latency SECONDS]
"""

from __future__ import annotations

import argparse
import heapq
import random
import time
from typing import Any, Sequence

from stripewise import _tasks

PROCESSORS_A_NODE = 16
NODES = (1, 10, 100, 300, 1000)
#: Share of tasks whose worker is lost half-way.
LOST = 0.001


class Simulated:
    """Workers in simulated time."""

    def __init__(self, processors: int, piece_seconds: float, handling: float, latency: float) -> None:
        self.count = processors
        self.piece_seconds = piece_seconds
        self.handling, self.latency = handling, latency
        self.random = random.Random(1)
        self.now = 0.0
        self.free = [0.0] * processors
        self.flying: list[tuple[float, tuple[int, int], float]] = []
        self.tasks = 0

    def processors(self) -> int:
        return self.count

    def submit(self, first: int, end: int) -> tuple[int, int]:
        # Half of the handling when it is handed out, half when its result is taken.
        self.now += self.handling / 2
        # Pieces differ: those of a sweep by a factor of two and more.
        seconds = (end - first) * self.piece_seconds * self.random.uniform(0.7, 1.3)
        spent = seconds
        while self.random.random() < LOST:
            spent += seconds / 2
        begins = max(heapq.heappop(self.free), self.now + self.latency)
        heapq.heappush(self.free, begins + spent)
        heapq.heappush(self.flying, (begins + spent + self.latency, (first, end), seconds))
        self.tasks += 1
        return first, end

    def wait(self) -> tuple[Any, float, int]:
        ends, task, seconds = heapq.heappop(self.flying)
        self.now = max(self.now, ends) + self.handling / 2
        return task, seconds, task[1] - task[0]

    def cancel(self, handles: Sequence[Any]) -> None:
        assert not handles


def simulated(
    processors: int, pieces: int, piece_seconds: float, handling: float, latency: float
) -> tuple[float, int]:
    """Seconds and tasks of a range of pieces."""
    workers = Simulated(processors, piece_seconds, handling, latency)
    done = _tasks.gather(workers, _tasks.Splitter(), 0, pieces)
    assert sum(done) == pieces
    return workers.now, workers.tasks


def nothing(request: object, first: int, end: int) -> tuple[float, int]:
    """A task without work."""
    return 0.0, end - first


def measured() -> tuple[float, float]:
    """Processor seconds of this process for each task of Ray, and seconds from submit to result."""
    import ray

    from stripewise.ray import RayTasks

    ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level="ERROR")
    workers = RayTasks(nothing, {})
    for _ in range(200):
        workers.submit(0, 1)
    for _ in range(200):
        workers.wait()
    latencies = []
    for _ in range(100):
        began = time.perf_counter()
        workers.submit(0, 1)
        workers.wait()
        latencies.append(time.perf_counter() - began)
    began = time.process_time()
    for number in range(3000):
        workers.submit(number, number + 1)
    for _ in range(3000):
        workers.wait()
    handling = (time.process_time() - began) / 3000
    ray.shutdown()
    return handling, sorted(latencies)[len(latencies) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--handling", type=float, default=_tasks.HANDLING_SECONDS)
    parser.add_argument("--latency", type=float, default=0.005)
    options = parser.parse_args()
    handling, latency = options.handling, options.latency
    if options.measure:
        handling, latency = measured()
    print(f"each task: {1e3 * handling:.2f} ms of this process, {1e3 * latency:.1f} ms on the way")
    print(
        f"{'nodes':>6} {'processors':>10} {'work':>12} {'tasks':>8} {'seconds':>9} {'ideal':>9} {'used':>6}"
    )
    # Ten minutes of work for every processor, and the same small work for all.
    for minutes, nodes in [(10.0 * nodes, nodes) for nodes in NODES] + [(10.0, nodes) for nodes in NODES]:
        processors = nodes * PROCESSORS_A_NODE
        piece_seconds = 0.01
        pieces = int(60 * minutes * PROCESSORS_A_NODE / piece_seconds)
        seconds, tasks = simulated(processors, pieces, piece_seconds, handling, latency)
        ideal = pieces * piece_seconds / processors
        print(
            f"{nodes:>6} {processors:>10} {minutes * PROCESSORS_A_NODE / 60:>8.1f} CPUh {tasks:>8}"
            f" {seconds:>9.1f} {ideal:>9.1f} {100 * ideal / seconds:>5.1f}%",
            flush=True,
        )


if __name__ == "__main__":
    main()
