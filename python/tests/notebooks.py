#!/usr/bin/env python3
"""Runs the notebooks of `docs/notebooks` without Jupyter.

Cells run in one namespace, as in a notebook: standard output and the value of the last expression
are their text, figures of matplotlib their pictures. The text of a cell depends on the package
alone, so `test_notebooks.py` compares it with the text that the notebook shows.

usage: notebooks.py --write NOTEBOOK...    runs notebooks and keeps what their cells give
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

Outputs = "list[dict[str, Any]]"


def run(path: Path) -> dict[str, Any]:
    """The notebook with the outputs of a fresh run."""
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    count = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            source = "".join(cell["source"])
            cell["outputs"] = run_cell(source, f"{path.name}, cell {count}", names, count)
            cell["execution_count"] = count
    return notebook


def run_cell(source: str, place: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Runs a cell; errors name the notebook and the cell."""
    tree = ast.parse(source, place)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, place, "exec"), names)
        value = None if last is None else eval(compile(ast.Expression(last.value), place, "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": lines_of(printed.getvalue())})
    pictures = figures()
    # The axes that a plot returns say nothing beside the picture.
    if value is not None and not pictures:
        data = {"text/plain": lines_of(repr(value))}
        outputs.append(
            {"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"}
        )
    for picture in pictures:
        outputs.append({"data": {"image/png": picture}, "metadata": {}, "output_type": "display_data"})
    return outputs


def figures() -> list[str]:
    """The open figures of matplotlib, which are closed."""
    import matplotlib.pyplot as pyplot

    pictures = []
    for number in pyplot.get_fignums():
        picture = io.BytesIO()
        pyplot.figure(number).savefig(picture, format="png", dpi=80, metadata={"Software": None})
        pictures.append(base64.b64encode(picture.getvalue()).decode())
    pyplot.close("all")
    return pictures


def lines_of(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def text_of(outputs: list[dict[str, Any]]) -> str:
    """Text of a cell's outputs; a picture is a line."""
    parts = []
    for output in outputs:
        data = output.get("data", {})
        parts.append("".join(output.get("text") or data.get("text/plain") or ["(picture)"]))
    return "\n".join(parts)


def main() -> None:
    if sys.argv[1:2] != ["--write"] or len(sys.argv) < 3:
        sys.exit("usage: notebooks.py --write NOTEBOOK...")
    for name in sys.argv[2:]:
        notebook = run(Path(name))
        Path(name).write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
