"""Speed of parity beside pyeclib and zfec, in 10^6 bytes of data per second on one thread.

Stripes of 8 data units; units in the processor's caches, and far beyond them. The units of zfec and
pyeclib (with ISA-L where it has it) are those that they take; both copy their answers, which is part
of what is measured. A library that is not installed is left out.

usage: parity.py
"""

from __future__ import annotations

import itertools
import os
import time
from typing import Any, Callable

import numpy

from stripewise import parity

DATA_UNITS = 8
SECONDS = 0.4
ROUNDS = 3


def mb_per_s(call: Callable[[], Any], data_bytes: int) -> float:
    """The best of some rounds: other work of the machine only slows one down."""
    call()
    best = 0.0
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for count in itertools.count(1):
            call()
            elapsed = time.perf_counter() - began
            if elapsed > SECONDS:
                break
        best = max(best, count * data_bytes / elapsed / 1e6)
    return best


def ours(unit_bytes: int, parities: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    data = [numpy.frombuffer(os.urandom(unit_bytes), dtype=numpy.uint8) for _ in range(DATA_UNITS)]
    out = [numpy.zeros(unit_bytes, dtype=numpy.uint8) for _ in range(parities)]
    parity.encode(data, out)
    left: list[Any] = [None] * parities + data[parities:] + [unit.copy() for unit in out]
    return (
        lambda: parity.encode(data, out),
        lambda: parity.recover(left, DATA_UNITS, out=out),
    )


def by_zfec(unit_bytes: int, parities: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    import zfec

    data = [os.urandom(unit_bytes) for _ in range(DATA_UNITS)]
    encoder = zfec.Encoder(DATA_UNITS, DATA_UNITS + parities)
    decoder = zfec.Decoder(DATA_UNITS, DATA_UNITS + parities)
    numbers = list(range(DATA_UNITS, DATA_UNITS + parities))
    parity_units = encoder.encode(data, numbers)
    # Units that are left have the place of their number.
    left = (*parity_units, *data[parities:])
    places = (*numbers, *range(parities, DATA_UNITS))
    return lambda: encoder.encode(data, numbers), lambda: decoder.decode(left, places)


def by_pyeclib(unit_bytes: int, parities: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    from pyeclib.ec_iface import VALID_EC_TYPES, ECDriver

    # With ISA-L where the package has it, else its own arithmetic.
    kinds = [kind for kind in ("isa_l_rs_vand", "liberasurecode_rs_vand") if kind in VALID_EC_TYPES]
    driver = ECDriver(k=DATA_UNITS, m=parities, ec_type=kinds[0])
    data = os.urandom(unit_bytes * DATA_UNITS)
    units = driver.encode(data)
    return lambda: driver.encode(data), lambda: driver.decode(units[parities:])


def main() -> None:
    print(f"parity kernel {parity.kernel()}; {DATA_UNITS} data units; 10^6 bytes of data per second")
    print(f"{'unit':>8} {'parity':>6} {'':>8} {'stripewise':>11} {'zfec':>14} {'pyeclib':>14}")
    for unit_bytes, parities in itertools.product((4096, 65536, 4 << 20), (1, 2, 3)):
        columns: dict[str, list[float]] = {}
        for name, make in (("stripewise", ours), ("zfec", by_zfec), ("pyeclib", by_pyeclib)):
            try:
                calls = make(unit_bytes, parities)
            except ImportError:
                continue
            columns[name] = [mb_per_s(call, unit_bytes * DATA_UNITS) for call in calls]
        for at, work in enumerate(("encode", "recover")):
            figures = f"{columns['stripewise'][at]:11.0f}"
            for name in ("zfec", "pyeclib"):
                other = columns.get(name)
                figures += (
                    f" {other[at]:6.0f} ({columns['stripewise'][at] / other[at]:4.1f}×)"
                    if other
                    else f" {'not there':>14}"
                )
            print(f"{unit_bytes >> 10:>6} K {parities:>6} {work:>8} {figures}", flush=True)


if __name__ == "__main__":
    main()
