"""Exceptions of the package: a message, and a hint at what to do."""

from __future__ import annotations

from typing import Any, Dict, Optional

__all__ = ["DaemonError", "Error", "RequestError"]


class Error(Exception):
    """An error of Stripewise. `hint` says what to do; it may be empty."""

    #: Suggested remedy, in one line.
    hint: str

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class RequestError(Error, ValueError):
    """An invalid argument: an unknown name, a value out of range, a layout that the drives refuse."""


class DaemonError(Error):
    """A request that a daemon refused or could not do, or a daemon that did not answer.

    `status`: status of HTTP (403 for a role that is not enough, 404 for an unknown name, 409 for
    what could not be done), `None` without an answer. `document`: the result, if the request was
    done with a bad outcome.
    """

    status: Optional[int]
    document: Optional[Dict[str, Any]]

    def __init__(
        self,
        message: str,
        hint: str = "",
        status: Optional[int] = None,
        document: Optional[Dict[str, Any]] = None,
    ) -> None:
        super().__init__(message, hint)
        self.status = status
        self.document = document
