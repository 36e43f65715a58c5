"""Sizes as people write them, with the units of the command line.

`K M G T P E` and `KiB MiB …` count in powers of 1024, `KB MB GB TB PB EB` in powers of 1000. Upper
and lower case are the same; fractions are rounded down to whole bytes.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Union

from ._errors import RequestError

#: A number of bytes, or text such as `"64K"`, `"1MiB"`, `"4TB"`.
Size = Union[int, str]

_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([kmgtpe])(i?b)?|b)?\s*", re.IGNORECASE | re.ASCII)
_LIMIT = 2**64


def size_bytes(name: str, size: Size) -> int:
    """The bytes of a size; `name` is the argument that the error names."""
    if isinstance(size, bool) or not isinstance(size, (int, str)):
        raise TypeError(f"{name} is a number of bytes or text, not {type(size).__name__}")
    if isinstance(size, int):
        number = Fraction(size)
    else:
        form = _FORM.fullmatch(size)
        if form is None:
            raise RequestError(
                f"{name}: `{size}` is not a size",
                "write a number and a unit, as in 4096, 64K, 64KiB, 1.5TB",
            )
        digits, prefix, unit = form.groups()
        base = 1000 if unit is not None and unit.lower() == "b" else 1024
        power = "kmgtpe".index(prefix.lower()) + 1 if prefix else 0
        number = Fraction(digits) * base**power
        if not prefix and number.denominator != 1:
            raise RequestError(f"{name}: `{size}` is not a whole number of bytes", "for example 4096")
    if not 0 <= number < _LIMIT:
        raise RequestError(f"{name}: `{size}` is not between 0 and 2^64 bytes", "for example 4TB")
    return int(number)


def optional_bytes(name: str, size: Size | None) -> int | None:
    """The same for an argument that may be left out."""
    return None if size is None else size_bytes(name, size)
