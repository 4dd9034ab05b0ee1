# SPDX-License-Identifier: Apache-2.0
"""What is reported of repeated measurements."""
import math


def median(values):
    ordered = sorted(values)
    n = len(ordered)
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2


def summarise(values):
    """Median, least, largest and 95th percentile of at least one value."""
    ordered = sorted(values)
    middle = median(ordered)
    p95 = ordered[math.ceil(0.95 * len(ordered)) - 1]
    return {"median": middle, "min": ordered[0], "p95": max(middle, p95), "max": ordered[-1]}


def ratios(above, below):
    """Round by round: what was measured in one round belongs together."""
    if len(above) != len(below):
        raise ValueError(f"{len(above)} and {len(below)} rounds")
    return [a / b for a, b in zip(above, below)]
