"""On a cluster of Ray: answers are those of one process, also when workers and nodes are lost."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any, Iterator

# Ray's workers have a low priority, which other work on this machine would starve.
os.environ["RAY_worker_niceness"] = "0"

import pyarrow
import pytest
import ray
from ray.cluster_utils import Cluster

import stripewise
import stripewise.ray

GRID: dict[str, Any] = {"drives": range(2, 22), "blocks": ("4K",), "depths": (1, 4, 16), "seed": 5}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two nodes of a processor each; tasks run on both."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def workers_of_this_test() -> list[int]:
    """Processes of Ray below this one that are at work."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "stat").read_text()
                names[int(entry.name)] = (entry / "cmdline").read_bytes().decode(errors="replace")
                parents[int(entry.name)] = int(status.rsplit(")", 1)[1].split()[1])
            except OSError:
                continue

    def is_ours(process: int) -> bool:
        while process > 1:
            if process == os.getpid():
                return True
            process = parents.get(process, 0)
        return False

    return [number for number, name in names.items() if name.startswith("ray::") and is_ours(number)]


class Kill:
    """A progress callback that kills a worker at its work, once a share of the work is done."""

    def __init__(self, share: float) -> None:
        self.share = share
        self.killed = 0
        # Between rounds of an estimate no worker is at work: another thread waits for one.
        self.thread = threading.Thread(target=self.kill)

    def __call__(self, done: int, total: int) -> None:
        if self.thread.ident is None and done >= self.share * total:
            self.thread.start()

    def kill(self) -> None:
        deadline = time.monotonic() + 60
        while not self.killed and time.monotonic() < deadline:
            for worker in filter(is_at_work, workers_of_this_test()):
                os.kill(worker, signal.SIGKILL)
                self.killed = worker
                return
            time.sleep(0.01)

    def has_killed(self) -> bool:
        self.thread.join()
        return self.killed > 0


def is_at_work(process: int) -> bool:
    try:
        name = Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False
    return b"_task" in name


def test_a_sweep_survives_a_killed_worker(cluster: Cluster) -> None:
    kill = Kill(0.5)
    table = stripewise.ray.sweep("mg08ada800e", progress=kill, **GRID)
    assert kill.has_killed()
    assert table.equals(pyarrow.table(stripewise.sweep("mg08ada800e", progress=False, **GRID)))


def test_an_estimate_survives_a_killed_worker(cluster: Cluster) -> None:
    options: dict[str, Any] = {"precision_percent": 0.5, "ure": 1e-14, "seed": 3}
    # Each round is as long as all before it: the last one begins after a half of the work.
    kill = Kill(0.1)
    found = stripewise.ray.reliability("raid6", 8, progress=kill, **options)
    assert kill.has_killed()
    assert found == stripewise.reliability("raid6", 8, progress=False, **options)


def test_torture_survives_a_killed_worker(cluster: Cluster) -> None:
    kill = Kill(0.5)
    found = stripewise.ray.torture(7, 24, progress=kill)
    assert kill.has_killed()
    assert found == stripewise.torture(7, 24, progress=False)


def test_a_sweep_survives_a_lost_node(cluster: Cluster) -> None:
    lost = cluster.add_node(num_cpus=1)
    is_lost = False

    def lose(done: int, total: int) -> None:
        nonlocal is_lost
        if not is_lost and 2 * done >= total:
            cluster.remove_node(lost, allow_graceful=False)
            is_lost = True

    table = stripewise.ray.sweep("mg08ada800e", progress=lose, **GRID)
    assert is_lost
    assert table.equals(pyarrow.table(stripewise.sweep("mg08ada800e", progress=False, **GRID)))


def test_refusals_of_a_task_have_their_hint(cluster: Cluster) -> None:
    with pytest.raises(stripewise.RequestError, match="unknown focus") as error:
        stripewise.ray.torture(focus="none", progress=False)
    assert "one of" in error.value.hint


def test_an_interrupt_ends_a_call(cluster: Cluster) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 3)
    began = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            stripewise.ray.torture(1, 100_000, progress=False)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - began < 6
