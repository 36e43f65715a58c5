"""The notebooks run, and show what their cells give."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import notebooks
from conftest import ROOT

ALL = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks() -> None:
    assert len(ALL) == 3


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_a_notebook_shows_what_its_cells_give(
    path: Path, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("STRIPEWISE_PROGRAM", program)
    shown = json.loads(path.read_text(encoding="utf-8"))
    found = notebooks.run(path)
    for number, (before, now) in enumerate(zip(shown["cells"], found["cells"])):
        if before["cell_type"] == "code":
            assert notebooks.text_of(before["outputs"]) == notebooks.text_of(now["outputs"]), (
                f"cell {number} of {path.name}; hint: python/tests/notebooks.py --write {path}"
            )
            assert before["outputs"] or before["source"][0].startswith(("import", "from", "#"))
