"""Parity of buffers: every loss is recovered, nothing is copied, and what does not fit is refused."""

from __future__ import annotations

import itertools
import mmap
import random
import threading
import time
from typing import Any, Callable

import numpy
import pytest

import stripewise
from stripewise import parity


def stripe(data_units: int, parity_units: int, length: int = 97) -> list[bytes]:
    units = [random.Random(number).randbytes(length) for number in range(data_units)]
    return units + [bytes(unit) for unit in parity.encode(units, parity_units)] if parity_units else units


def multiply(a: int, b: int) -> int:
    """Product in GF(2^8) with the polynomial 0x11d."""
    product = 0
    while b:
        product ^= a if b & 1 else 0
        a = (a << 1) ^ (0x11D if a & 0x80 else 0)
        b >>= 1
    return product


def power(base: int, exponent: int) -> int:
    product = 1
    for _ in range(exponent):
        product = multiply(product, base)
    return product


def test_parity_is_the_sum_of_its_definition() -> None:
    units = stripe(5, 3, length=4)
    for row, base in enumerate((1, 2, 4)):
        for at in range(4):
            expected = 0
            for number in range(5):
                expected ^= multiply(power(base, number), units[number][at])
            assert units[5 + row][at] == expected


@pytest.mark.parametrize("parity_units", [1, 2, 3])
@pytest.mark.parametrize("data_units", [1, 2, 5])
def test_every_loss_is_recovered(data_units: int, parity_units: int) -> None:
    units = stripe(data_units, parity_units)
    for count in range(parity_units + 1):
        for lost in itertools.combinations(range(len(units)), count):
            left = [None if number in lost else unit for number, unit in enumerate(units)]
            assert parity.recover(left, data_units) == [units[number] for number in lost]


def test_255_data_units_lose_any_three() -> None:
    units = stripe(255, 3, length=16)
    for lost in [(0, 127, 254), (254, 255, 257), (255, 256, 257), (1, 2, 256)]:
        left = [None if number in lost else unit for number, unit in enumerate(units)]
        assert parity.recover(left, 255) == [units[number] for number in lost]


def test_only_wanted_units_are_computed() -> None:
    units = stripe(4, 2)
    left = [None, *units[1:5], None]
    assert parity.recover(left, 4, wanted=[0]) == [units[0]]
    out = bytearray(97)
    assert parity.recover(left, 4, wanted=[5], out=[out])[0] is out
    assert out == units[5]


def test_parity_follows_a_change_of_one_unit() -> None:
    units = stripe(4, 3)
    new = bytes(97)
    parities = [bytearray(unit) for unit in units[4:]]
    parity.update(2, bytes(old ^ new for old, new in zip(units[2], new)), parities)
    assert parities == parity.encode([units[0], units[1], new, units[3]], 3)


def numpy_units() -> list[Any]:
    return [numpy.frombuffer(unit, dtype=numpy.uint8) for unit in stripe(3, 0, length=64)]


@pytest.mark.parametrize(
    "of",
    [
        lambda unit: numpy.frombuffer(unit, dtype=numpy.uint64),
        lambda unit: numpy.frombuffer(unit, dtype=numpy.float32).reshape(4, 4),
        memoryview,
        bytearray,
        lambda unit: memoryview(bytes(7) + unit)[7:],
    ],
)
def test_any_contiguous_memory_is_a_unit(of: Callable[[bytes], Any]) -> None:
    units = stripe(3, 2, length=64)
    data = [of(unit) for unit in units[:3]]
    assert parity.encode(data, 2) == units[3:]
    assert parity.recover([None, None, data[2], *units[3:]], 3) == units[:2]


def test_parity_is_written_in_place() -> None:
    p, q = numpy.zeros(64, dtype=numpy.uint8), bytearray(64)
    r = mmap.mmap(-1, 64)
    found = parity.encode(numpy_units(), [p, q, r])
    assert found[0] is p and found[1] is q and found[2] is r
    expected = parity.encode(numpy_units(), 3)
    assert [p.tobytes(), bytes(q), r[:]] == [bytes(unit) for unit in expected]
    # Rows of one array are memory of their own.
    rows = numpy.zeros((3, 64), dtype=numpy.uint8)
    parity.encode(numpy_units(), list(rows))
    assert rows.tobytes() == b"".join(expected)


def test_memory_is_released_after_a_call() -> None:
    unit = bytearray(16)
    parity.encode([unit], [bytearray(16)])
    with pytest.raises(stripewise.RequestError):
        parity.encode([unit], [bytearray(17)])
    unit.append(1)


def test_nothing_is_copied() -> None:
    size = 64 << 20
    data = numpy.zeros(size, dtype=numpy.uint8)
    out = numpy.zeros(size, dtype=numpy.uint8)
    peak = 0
    ended = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not ended.is_set():
            peak = max(peak, resident_bytes())
            time.sleep(0.0005)

    data[:], out[:] = 1, 2
    before = peak = resident_bytes()
    thread = threading.Thread(target=watch)
    thread.start()
    for _ in range(4):
        parity.encode([data, data], [out])
    ended.set()
    thread.join()
    assert peak - before < size // 2
    assert not out.any()


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


def test_other_threads_run_during_a_call() -> None:
    data = [numpy.ones(64 << 20, dtype=numpy.uint8)] * 8
    out = [numpy.zeros(64 << 20, dtype=numpy.uint8) for _ in range(3)]
    counted = 0
    ended = threading.Event()

    def count() -> None:
        nonlocal counted
        while not ended.is_set():
            counted += 1
            time.sleep(0.0005)

    def counted_in_a_call() -> int:
        before = counted
        parity.encode(data, out)
        return counted - before

    thread = threading.Thread(target=count)
    thread.start()
    try:
        # A busy machine may hold up the thread; with the lock held it runs after the call alone.
        assert any(counted_in_a_call() > 25 for _ in range(10))
    finally:
        ended.set()
        thread.join()


UNIT = bytes(range(16))
READ_ONLY = numpy.zeros(16, dtype=numpy.uint8)
READ_ONLY.flags.writeable = False
STRIDED = numpy.zeros(32, dtype=numpy.uint8)[::2]
SHARED = bytearray(24)
REFUSED: list[tuple[Callable[[], Any], str, str]] = [
    (lambda: parity.encode([], 1), "0 data units", "1 to 255"),
    (lambda: parity.encode([UNIT] * 256, 1), "256 data units", "1 to 255"),
    (lambda: parity.encode([UNIT], 0), "0 parity units", "1 to 3"),
    (lambda: parity.encode([UNIT], 4), "4 parity units", "1 to 3"),
    (lambda: parity.encode([UNIT], -1), "0 parity units", "1 to 3"),
    (lambda: parity.encode([UNIT, UNIT[1:]], 1), "units of 16 and 15 bytes", "pad"),
    (lambda: parity.encode([UNIT], [bytearray(17)]), "units of 16 and 17 bytes", "pad"),
    (lambda: parity.encode([UNIT], [bytes(16)]), "output 0: ", "writable"),
    (lambda: parity.encode([UNIT], [READ_ONLY]), "output 0: ", "writable"),
    (lambda: parity.encode([UNIT, STRIDED], 1), "input 1: ", "contiguous"),
    (lambda: parity.encode([UNIT], [STRIDED]), "output 0: ", "contiguous"),
    (
        lambda: parity.encode([memoryview(SHARED)[:16]], [memoryview(SHARED)[8:]]),
        "overlaps",
        "memory of its own",
    ),
    (lambda: parity.encode([UNIT], [SHARED, SHARED]), "bytes do not form", "pad"),
    (lambda: parity.encode([bytes(24)], [SHARED, SHARED]), "overlaps", "memory of its own"),
    (lambda: parity.recover([UNIT, None, None, UNIT], 3), "2 of 4 units are left", "any 3 units"),
    (lambda: parity.recover([UNIT, None, UNIT], 2, out=[]), "0 outputs for 1", "each"),
    (lambda: parity.recover([UNIT, None, UNIT], 2, wanted=[5]), "cannot be recovered", "2 distinct"),
    (lambda: parity.recover([UNIT, None], 0), "0 data units", "1 to 255"),
    (lambda: parity.recover([UNIT] * 300, 256), "256 data units", "1 to 255"),
    (lambda: parity.update(255, UNIT, [bytearray(16)]), "256 data units", "1 to 255"),
    (lambda: parity.update(0, UNIT, []), "0 parity units", "1 to 3"),
]


@pytest.mark.parametrize(("call", "message", "hint"), REFUSED)
def test_units_that_do_not_fit_are_refused(call: Callable[[], Any], message: str, hint: str) -> None:
    with pytest.raises(stripewise.RequestError) as error:
        call()
    assert message in error.value.message
    assert hint in error.value.hint


def test_refused_outputs_are_left_unchanged() -> None:
    out = [bytearray(b"x" * 16), bytes(16)]
    with pytest.raises(stripewise.RequestError):
        parity.encode([UNIT], out)
    assert out[0] == b"x" * 16


def test_objects_without_memory_are_refused() -> None:
    for call in [
        lambda: parity.encode([7], [bytearray(1)]),
        lambda: parity.encode(["text"], [bytearray(4)]),
        lambda: parity.encode([UNIT], [None]),
    ]:
        with pytest.raises(TypeError, match="put 0: "):
            call()


def test_empty_units_are_a_stripe() -> None:
    assert parity.encode([b"", b""], 2) == [b"", b""]


def test_the_kernel_has_a_name() -> None:
    assert parity.kernel() in {"portable", "avx2", "gfni", "neon"}
