"""Progress of calls that take long: tqdm's bar if it is installed, or a function of the caller."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import Callable, Iterator, Optional, Union

#: `None`: a bar of tqdm if it is installed and standard error is a terminal or a notebook. `True`:
#: a bar wherever tqdm is installed. `False`: none. Or a function that is called with the work done
#: and the total, which may grow.
Progress = Union[None, bool, Callable[[int, int], None]]


@contextmanager
def reporter(progress: Progress, label: str, unit: str) -> Iterator[Optional[Callable[[int, int], None]]]:
    """The function that the native code calls, or `None`."""
    if callable(progress):
        yield progress
        return
    if progress is False or (progress is None and not _is_watched()):
        yield None
        return
    try:
        from tqdm.auto import tqdm  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        yield None
        return
    # Calls below a fifth of a second show no bar.
    with tqdm(desc=label, unit=unit, delay=0.2, leave=False) as bar:

        def report(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield report


def _is_watched() -> bool:
    """True if a person sees standard error: at a terminal or in a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules
