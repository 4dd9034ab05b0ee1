#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes exact_sum_golden.json beside this file: sums of doubles, added as Python's integers of unlimited width.

Each double is a whole multiple of 2^-1074, so the sum is an integer, and the double nearest to it is found by comparing
integers. Doubles are written as the 16 hexadecimal digits of their bits. Needs nothing but Python; the seeds are fixed,
so it writes the same bytes each time.
"""

import json
import pathlib
import random
import struct

INFINITY = 0x7FF << 52
LARGEST = INFINITY - 1
NAN = "nan"


def integer(bits):
    """The double as a multiple of 2^-1074."""
    exponent = bits >> 52 & 0x7FF
    fraction = bits & (1 << 52) - 1
    magnitude = fraction if exponent == 0 else (fraction | 1 << 52) << exponent - 1
    return -magnitude if bits >> 63 else magnitude


def nearest(total):
    """The bits of the double nearest to an integer multiple of 2^-1074; ties go to the even one."""
    sign = 1 << 63 if total < 0 else 0
    magnitude = abs(total)
    low, high = 0, LARGEST  # positive doubles are ordered as their bits are
    while low < high:
        middle = (low + high + 1) // 2
        if integer(middle) <= magnitude:
            low = middle
        else:
            high = middle - 1
    above = 2**2098 if low == LARGEST else integer(low + 1)
    twice = 2 * magnitude - integer(low) - above
    up = twice > 0 or (twice == 0 and low % 2 == 1)
    return sign | low + up


def total_of(values):
    specials = {bits for bits in values if bits >> 52 & 0x7FF == 0x7FF}
    if any(bits & (1 << 52) - 1 for bits in specials) or len(specials) == 2:
        return NAN
    if specials:
        return f"{specials.pop():016x}"
    return f"{nearest(sum(map(integer, values))):016x}"


def double(value):
    return struct.unpack("<Q", struct.pack("<d", value))[0]


def cases(rng):
    def any_finite():
        return rng.randrange(LARGEST + 1) | rng.getrandbits(1) << 63

    def within(lowest, highest):
        return rng.randrange(lowest, highest) << 52 | rng.getrandbits(52) | rng.getrandbits(1) << 63

    yield "nothing", []
    for count in (1, 2, 3, 17, 200):
        yield f"{count} of any size", [any_finite() for _ in range(count)]
        yield f"{count} near one", [within(1000, 1040) for _ in range(count)]
        yield f"{count} huge", [within(2040, 2047) for _ in range(count)]
        yield f"{count} tiny", [within(0, 3) for _ in range(count)]
        yield f"{count} subnormal", [rng.getrandbits(52) for _ in range(count)]
    for _ in range(40):  # what is left of numbers that cancel
        some = [any_finite() for _ in range(rng.randrange(1, 8))]
        yield "all but one cancel", some + [bits ^ 1 << 63 for bits in some] + [any_finite()]
        yield "all cancel", some + [bits ^ 1 << 63 for bits in some]
    one = double(1.0)
    half_way = double(2.0**-53)
    least = 1
    yield "a tie to even, down", [one, half_way]
    yield "a tie to even, up", [one + 1, half_way]
    yield "a tie broken by the smallest", [one, half_way, least]
    yield "a tie broken downwards", [one + 1, half_way, least | 1 << 63]
    yield "rounded up to a power of two", [double(2.0) - 1, half_way]
    yield "subnormal to normal", [(1 << 52) - 1, least]
    yield "the largest", [LARGEST]
    yield "half a step above the largest", [LARGEST, double(2.0**970)]
    yield "less than that", [LARGEST, double(2.0**970) - 1]
    yield "twice the largest, and back", [LARGEST, LARGEST, LARGEST | 1 << 63]
    yield "the largest, 300 times", [LARGEST] * 300
    yield "the most negative, 300 times", [LARGEST | 1 << 63] * 300
    nan = INFINITY | 1 << 51
    minus = INFINITY | 1 << 63
    yield "infinity", [one, INFINITY, one]
    yield "minus infinity", [one, minus, LARGEST]
    yield "both infinities", [INFINITY, one, minus]
    yield "nan", [one, nan]
    yield "nan with a sign and infinity", [INFINITY, nan | 1 << 63]
    for _ in range(60):
        yield "mixed", [rng.choice((any_finite, lambda: within(1000, 1040), lambda: within(0, 3)))() for _ in range(30)]


def main():
    written = [
        {"name": name, "values": [f"{bits:016x}" for bits in values], "sum": total_of(values)}
        for name, values in cases(random.Random(20261127))
    ]
    path = pathlib.Path(__file__).with_name("exact_sum_golden.json")
    path.write_text("[\n" + ",\n".join(json.dumps(case) for case in written) + "\n]\n")


if __name__ == "__main__":
    main()
