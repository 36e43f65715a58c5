#!/usr/bin/env python3
"""Builds and lints with one cargo command, then runs all tests from one queue.

Each test is a process of its own, so a test that waits does not hold up one that computes, and every
test has a time. Two kinds of worker take tests from the queue: one per core for tests in virtual
time, which only compute, and several per core for tests in real time (targets `real_time` and
`clients`), which mostly wait. Computing tests run at a lower priority, so that a test in real time
gets a core when it wakes.

usage: scripts/run-tests.py [--virtual] [--slowest N] [FILTER...]

--virtual   unit tests and tests in virtual time only (`make check`)
FILTER      run only the tests whose path contains one of these, for example pool/it::crash

Exits with 1 if a test failed, the build did, or the compiler warned. The times of the last run are kept in the target
folder: long tests start first.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path

# Targets whose tests mostly wait for drives, clients and clocks.
REAL_TIME = {"real_time", "clients"}
# Concurrent tests in real time per core.
WAITING_PER_CORE = 3
# A test that takes longer than this has hung: it is killed, and has failed.
HANGS_AFTER_SECONDS = 300
# Above this a test is too long for the queue (CONTRIBUTING.md).
LONG_SECONDS = 8


class Test:
    """One test of one binary."""

    def __init__(self, binary, name):
        self.binary = binary
        self.name = name
        self.path = f"{binary.label}::{name}"
        self.is_real_time = binary.target in REAL_TIME
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        self.passed = False
        self.output = ""

    def command(self):
        return [self.binary.program, "--exact", self.name, "--nocapture", "--test-threads", "1"]


class DocTests:
    """All examples in the documentation, which cargo builds and runs by itself."""

    path = "examples in the documentation"
    is_real_time = False
    seconds = 0.0
    cpu_seconds = 0.0
    passed = False
    output = ""

    def command(self):
        return ["cargo", "test", "--workspace", "--locked", "--quiet", "--doc"]


class Binary:
    """One test binary, as cargo names it."""

    def __init__(self, message):
        package = message["manifest_path"]
        self.folder = os.path.dirname(package)
        self.target = message["target"]["name"]
        kind = "" if "test" in message["target"]["kind"] else f"{message['target']['kind'][0]}"
        self.label = f"{os.path.basename(self.folder)}/{kind or self.target}"
        self.program = message["executable"]

    def tests(self):
        listed = subprocess.run(
            [self.program, "--list", "--format", "terse"],
            cwd=self.folder, capture_output=True, text=True, check=True,
        ).stdout.splitlines()
        return [Test(self, line.removesuffix(": test")) for line in listed if line.endswith(": test")]


def build(targets):
    """Builds and lints, prints what the compiler says, and returns the test binaries."""
    command = ["cargo", "test", "--workspace", "--locked", "--quiet", "--no-run", *targets, "--message-format", "json"]
    binaries = []
    warnings = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as cargo:
        for line in cargo.stdout:
            message = json.loads(line)
            if message["reason"] == "compiler-message":
                print(message["message"]["rendered"], file=sys.stderr)
                # The workspace's own: cargo silences the warnings of dependencies.
                warnings += message["message"]["level"] == "warning"
            elif message["reason"] == "compiler-artifact" and is_tests(message):
                binaries.append(Binary(message))
    if cargo.returncode:
        sys.exit("error: the tests do not build (see above)")
    if warnings:
        sys.exit(f"error: {warnings} warnings of the compiler (see above)\nhint: mend them, or allow one with a reason")
    return binaries


def is_tests(message):
    """Whether an artifact is a program of tests; benches and examples are only built."""
    kinds = set(message["target"]["kind"])
    return message["profile"]["test"] and message["executable"] and not kinds & {"bench", "example"}


def target_folder():
    metadata = subprocess.run(
        ["cargo", "metadata", "--locked", "--no-deps", "--format-version", "1"],
        capture_output=True, text=True, check=True,
    )
    return Path(json.loads(metadata.stdout)["target_directory"])


class Queue:
    """Tests that wait to be run, and those that were."""

    def __init__(self, tests, times):
        longest_first = sorted(tests, key=lambda test: -times.get(test.path, 0.0))
        self.waiting = {kind: deque(t for t in longest_first if t.is_real_time == kind) for kind in (True, False)}
        self.over = []
        # Process groups.
        self.running = set()
        self.lock = threading.Lock()
        self.is_stopped = False

    def take(self, is_real_time):
        with self.lock:
            queue = self.waiting[is_real_time]
            return queue.popleft() if queue and not self.is_stopped else None

    def work(self, is_real_time):
        """Runs tests of one kind until none is left."""
        while test := self.take(is_real_time):
            self.run(test)
            with self.lock:
                self.over.append(test)
                report(test, len(self.over))

    def run(self, test):
        def prepare():
            # A shell that starts make in the background has it ignore interrupts; tests send some.
            for number in (signal.SIGINT, signal.SIGQUIT):
                signal.signal(number, signal.SIG_DFL)
            if not test.is_real_time:
                os.nice(10)

        folder = test.binary.folder if isinstance(test, Test) else None
        began = time.monotonic()
        with tempfile.TemporaryFile(mode="w+", errors="replace") as output:
            process = subprocess.Popen(
                test.command(), cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                preexec_fn=prepare, start_new_session=True,
            )
            with self.lock:
                self.running.add(process.pid)
            kill = threading.Timer(HANGS_AFTER_SECONDS, self.kill, [process.pid])
            kill.start()
            _, status, used = os.wait4(process.pid, 0)
            with self.lock:
                self.running.remove(process.pid)
            kill.cancel()
            process.returncode = code = os.waitstatus_to_exitcode(status)
            test.seconds = time.monotonic() - began
            test.cpu_seconds = used.ru_utime + used.ru_stime
            test.passed = code == 0
            if not test.passed:
                output.seek(0)
                test.output = output.read() + self.cause(test, code)

    @staticmethod
    def cause(test, code):
        if test.seconds >= HANGS_AFTER_SECONDS:
            return f"\nkilled: it took more than {HANGS_AFTER_SECONDS} s"
        return f"\nended by signal {-code}" if code < 0 else ""

    def kill(self, group):
        with self.lock:
            if group in self.running:
                os.killpg(group, signal.SIGKILL)

    def stop(self):
        """Kills what runs and starts nothing more."""
        with self.lock:
            self.is_stopped = True
            for group in self.running:
                os.killpg(group, signal.SIGKILL)


def report(test, number):
    """Says that a test is over: dots for those that passed, as `cargo test --quiet` does."""
    if test.passed:
        print(".", end="" if number % 100 else f" {number}\n", flush=True)
    else:
        print(f"\ntest {test.path} ... FAILED\n{test.output}", flush=True)


def run(tests, times):
    queue = Queue(tests, times)
    cores = os.cpu_count() or 1
    kinds = [False] * cores + [True] * (cores * WAITING_PER_CORE)
    workers = [threading.Thread(target=queue.work, args=(kind,)) for kind in kinds]
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    except KeyboardInterrupt:
        queue.stop()
        sys.exit("interrupted")
    return queue.over


def main():
    arguments = argparse.ArgumentParser(usage="scripts/run-tests.py [--virtual] [--slowest N] [FILTER...]")
    arguments.add_argument("--virtual", action="store_true")
    arguments.add_argument("--slowest", type=int, default=10)
    arguments.add_argument("filters", nargs="*")
    options = arguments.parse_args()

    os.chdir(Path(__file__).parent.parent)
    began = time.monotonic()
    kinds = ["--test", "it"] if options.virtual else ["--tests"]
    binaries = build(["--lib", "--bins", *kinds, "--benches", "--examples"])
    built = time.monotonic()
    tests = [test for binary in binaries for test in binary.tests()]
    if not options.virtual:
        tests.append(DocTests())
    found = len(tests)
    if options.filters:
        tests = [test for test in tests if any(part in test.path for part in options.filters)]
    if not tests:
        sys.exit(f"error: no test has {' or '.join(options.filters)} in its path")

    kept = target_folder() / "test-times.json"
    times = json.loads(kept.read_text()) if kept.exists() else {}
    print(f"running {len(tests)} tests of {len(binaries)} binaries", flush=True)
    over = run(tests, times)
    ended = time.monotonic()
    times.update({test.path: round(test.seconds, 3) for test in over if test.passed})
    kept.write_text(json.dumps(times, indent=0, sort_keys=True))

    failed = [test for test in over if not test.passed]
    slowest = sorted(over, key=lambda test: -test.seconds)[:options.slowest]
    print(f"\n\nslowest of {len(over)} tests: seconds, of these on a core")
    for test in slowest:
        mark = f"   over {LONG_SECONDS} s" if test.seconds > LONG_SECONDS else ""
        print(f"{test.seconds:8.2f} {test.cpu_seconds:8.2f}  {test.path}{mark}")
    if failed:
        print("\nfailures:")
        for test in failed:
            print(f"    {test.path}")
    on_cores = sum(test.cpu_seconds for test in over)
    verdict = "FAILED" if failed else "ok"
    left_out = found - len(tests)
    print(f"\ntest result: {verdict}. {len(over) - len(failed)} passed; {len(failed)} failed; 0 ignored; 0 measured; "
          f"{left_out} filtered out; finished in {ended - built:.2f}s\n")
    print(f"{ended - began:.0f} s in all: building and linting {built - began:.0f} s, tests {ended - built:.0f} s "
          f"({on_cores:.0f} s on cores)", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
