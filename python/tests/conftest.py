"""Set-ups that the tests share."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Callable

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

#: Runs the program with `--json` and returns its document.
CommandLine = Callable[..., Any]


@pytest.fixture(scope="session")
def program() -> str:
    """The program of debug builds, or STRIPEWISE_PROGRAM."""
    program = os.environ.get("STRIPEWISE_PROGRAM", str(ROOT / "target" / "debug" / "stripewise"))
    assert os.access(program, os.X_OK), f"{program} is not there; hint: cargo build -p stripewise"
    return program


@pytest.fixture(scope="session")
def command_line(program: str) -> CommandLine:
    """The program, whose answers are the package's."""

    def run(*arguments: str) -> Any:
        done = subprocess.run(
            [program, *arguments, "--json"], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        assert document.pop("output_version") == 1
        return document

    return run
