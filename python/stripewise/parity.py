"""Erasure coding of buffers: P, P+Q and P+Q+R over GF(2^8), with the kernels of the arrays.

>>> from stripewise import parity
>>> p, q = parity.encode([b"first unit", b"other unit"], 2)
>>> [bytes(unit) for unit in parity.recover([None, None, p, q], data_units=2)]
[b'first unit', b'other unit']

A unit is any object with contiguous memory: a NumPy array, `bytes`, `bytearray`, `memoryview`, a
memory map. Nothing is copied, and the interpreter's lock is released: threads encode in parallel.
No other thread may write to the units during a call.

Units are numbered data first: 0 to k - 1, then P = k, Q = k + 1, R = k + 2. As many lost units as
there are parity units can be recovered, for 1 to 255 data units. Bytes are those on the drives of
`raid5`, `raid6` and `raid7`.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Union

from . import _native
from ._errors import RequestError

__all__ = ["Buffer", "encode", "kernel", "recover", "update"]

#: An object with the buffer protocol (PEP 688 has a type for it from Python 3.12 on).
Buffer = Any


def encode(data: Sequence[Buffer], parity: Union[int, Sequence[Buffer]] = 1) -> List[Buffer]:
    """Compute the parity units of data units.

    :param data: 1 to 255 units of one length in bytes
    :param parity: number of parity units, 1 to 3 (P, P+Q, P+Q+R); or writable units for them
    :return: the parity units: new `bytearray`s if a number was given, else those that were given
    """
    units = list(data)
    if isinstance(parity, int):
        outputs: List[Buffer] = _new_units(units, parity)
    else:
        outputs = list(parity)
    _native.parity_encode(units, outputs)
    return outputs


def recover(
    units: Sequence[Optional[Buffer]],
    data_units: int,
    *,
    wanted: Optional[Sequence[int]] = None,
    out: Optional[Sequence[Buffer]] = None,
) -> List[Buffer]:
    """Compute lost units from the others.

    :param units: the units of the stripe in order, data first; `None` for a lost one
    :param data_units: number of data units of the stripe
    :param wanted: numbers of the units to compute; all lost ones by default
    :param out: writable units for the answer, in the order of `wanted`
    :return: the wanted units: new `bytearray`s, or `out`
    """
    present = [(number, unit) for number, unit in enumerate(units) if unit is not None]
    lost = [number for number, unit in enumerate(units) if unit is None]
    numbers = lost if wanted is None else list(wanted)
    sources = present[: max(data_units, 0)]
    if len(present) < data_units:
        raise RequestError(
            f"{len(present)} of {len(units)} units are left, of a stripe of {data_units} data units",
            f"any {data_units} units suffice; P, Q and R follow the data units",
        )
    outputs = _new_units([unit for _, unit in sources], len(numbers)) if out is None else list(out)
    if len(outputs) != len(numbers):
        raise RequestError(
            f"{len(outputs)} outputs for {len(numbers)} wanted units", "give one for each wanted unit"
        )
    _native.parity_recover(max(data_units, 0), sources, list(zip(numbers, outputs)))
    return outputs


def update(unit: int, change: Buffer, parity: Sequence[Buffer]) -> None:
    """Update parity units in place after a change of one data unit.

    :param unit: number of the data unit, from 0
    :param change: old contents XOR new contents
    :param parity: P; P and Q; or P, Q and R: writable units, as long as `change`
    """
    _native.parity_update(unit, change, list(parity))


def kernel() -> str:
    """The instructions in use: portable, avx2, gfni or neon."""
    return _native.parity_kernel()


def _new_units(like: Sequence[Buffer], number: int) -> List[Buffer]:
    """New units as long as the first of the given ones; the native code checks all lengths."""
    length = memoryview(like[0]).nbytes if like else 0
    return [bytearray(length) for _ in range(number)]
