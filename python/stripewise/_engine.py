"""Where the work of a call runs: in this process, or wherever `stripewise.ray` takes it.

The functions of the package complete a request and hand it to the engine of the context, so that
those of `stripewise.ray` have the same arguments.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Callable, Dict, Iterator, Optional

from . import _native

__all__ = ["Engine", "Report", "Request", "current", "use"]

Request = Dict[str, Any]
#: Called with the work done and the total.
Report = Optional[Callable[[int, int], None]]


class Engine:
    """The threads of this process."""

    def sweep(self, request: Request, report: Report) -> Any:
        """A table of predictions."""
        return _native.sweep(request, report, None)

    def reliability(self, request: Request, report: Report) -> Dict[str, Any]:
        """An estimate."""
        document: Dict[str, Any] = json.loads(_native.reliability(request, report))
        return document

    def torture(self, request: Request, report: Report) -> Dict[str, Any]:
        """Runs of torture."""
        document: Dict[str, Any] = json.loads(_native.torture(request, report))
        return document


_CURRENT: ContextVar[Engine] = ContextVar("stripewise.engine", default=Engine())


def current() -> Engine:
    """The engine of this context."""
    return _CURRENT.get()


@contextmanager
def use(engine: Engine) -> Iterator[None]:
    """Use another engine."""
    token = _CURRENT.set(engine)
    try:
        yield
    finally:
        _CURRENT.reset(token)
