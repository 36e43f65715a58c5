"""Exceptions of the package: a message, and a hint at what to do."""

from __future__ import annotations

__all__ = ["Error", "RequestError"]


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
