"""The types are complete and true."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import stripewise

PACKAGE = Path(stripewise.__file__).parent
CALLER = """\
import stripewise

def best(drives: str) -> str:
    return stripewise.advise(drives)["choices"][0]["layout"]

def rates() -> list[float]:
    table: stripewise.Table = stripewise.sweep("mg08ada800e", blocks=["4K", 65536])
    return table["iops"]

prediction = stripewise.predict(drives="4xmg08ada800e", layout="raid5")
p99: float = prediction["latency_us"]["p99"]
chance: float = stripewise.reliability("raid6", 8)["figures"]["loss_probability"]["mean"]
"""
MISTAKES = """\
import stripewise

stripewise.predict(drives=4, layout="raid5")
stripewise.predict(drives="4xmg08ada800e", layout="raid5")["speed"]
stripewise.sweep("mg08ada800e", depth=4)
"""


def checked(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *arguments]
    environment = {**os.environ, "MYPY_CACHE_DIR": str(folder / "cache")}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment, timeout=120, check=False
    )


def test_the_package_and_its_callers_are_typed(tmp_path: Path) -> None:
    (tmp_path / "caller.py").write_text(CALLER)
    done = checked("mypy", "--strict", "-p", "stripewise", folder=tmp_path)
    assert done.returncode == 0, done.stdout
    done = checked("mypy", "--strict", "caller.py", folder=tmp_path)
    assert done.returncode == 0, done.stdout
    (tmp_path / "mistakes.py").write_text(MISTAKES)
    done = checked("mypy", "--strict", "mistakes.py", folder=tmp_path)
    assert done.stdout.count("error:") == 3, done.stdout


def test_the_stub_is_that_of_the_native_module(tmp_path: Path) -> None:
    done = checked("mypy.stubtest", "stripewise._native", folder=tmp_path)
    assert done.returncode == 0, done.stdout


def test_every_public_name_has_documentation() -> None:
    for name in stripewise.__all__:
        assert (getattr(stripewise, name).__doc__ or "").strip(), name
