# SPDX-License-Identifier: Apache-2.0
"""From values to places of a picture, with marks at round values."""
import math

ROUND = (1, 2, 5, 10)


def round_step(span, marks):
    """The least of 1, 2 or 5 times a power of ten that cuts the span into at most so many."""
    power = 10.0 ** math.floor(math.log10(span / marks))
    return next(power * factor for factor in ROUND if power * factor * marks >= span * (1 - 1e-9))


class Linear:
    """From 0 to the first round value that is not below the largest."""

    def __init__(self, values, begin, end, marks=6):
        largest = max(values, default=0) or 1
        self.step = round_step(largest, marks)
        self.top = self.step * math.ceil(largest / self.step - 1e-9)
        self.begin, self.end = begin, end

    def place(self, value):
        return self.begin + (self.end - self.begin) * value / self.top

    def marks(self):
        """(value, text)"""
        count = round(self.top / self.step)
        return [(self.step * i, f"{self.step * i:.6g}") for i in range(count + 1)]


class Logarithmic:
    """From the power of `base` below the least to the one above the largest; `name` writes a value."""

    def __init__(self, values, begin, end, base=10, name="{:.6g}".format, most_marks=6):
        self.base, self.name = base, name
        self.low = math.floor(math.log(min(values), base) + 1e-9)
        self.high = max(math.ceil(math.log(max(values), base) - 1e-9), self.low + 1)
        self.step = math.ceil((self.high - self.low) / most_marks)
        self.begin, self.end = begin, end

    def place(self, value):
        share = (math.log(value, self.base) - self.low) / (self.high - self.low)
        return self.begin + (self.end - self.begin) * share

    def marks(self):
        powers = [float(self.base) ** power for power in range(self.low, self.high + 1, self.step)]
        return [(value, self.name(value)) for value in powers]
