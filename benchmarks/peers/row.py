# SPDX-License-Identifier: Apache-2.0
"""A line of the table: two sides that were measured in turns, and how they compare."""
import math

from figures import all_rounded, four_digits

# What a row's figure can be. The first column of units is for people.
FIGURES = {
    "times_faster": "the peer's time over the library's, median of rounds",
    "share": "the peer's time over the library's, of which it is a part, median of rounds",
    "times_the_cost": "the library's cost over the peer's, median of rounds",
    "times_the_instructions": "the library's instructions over the peer's",
    "ns_per_verb": "nanoseconds of one verb over the bare call, median of rounds",
    "ns_per_operation": "nanoseconds of one operation of a step that follows a schedule over the step without, median of "
                        "rounds",
    "ns_per_call": "nanoseconds of one more record of a call, median of rounds",
    "instructions_per_verb": "instructions of one verb over the bare call",
    "instructions_per_operation": "the same of one operation",
}


def summarise(values):
    """Median, least, largest and 95th percentile of at least one value."""
    ordered = sorted(values)
    n = len(ordered)
    median = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    p95 = ordered[math.ceil(0.95 * n) - 1]
    return {"median": median, "min": ordered[0], "p95": max(median, p95), "max": ordered[-1]}


def at_least(value):
    return {"least": value}


def at_most(value):
    return {"most": value}


def target_text(target):
    if target is None:
        return "-"
    return f">= {target['least']:.4g}" if "least" in target else f"<= {target['most']:.4g}"


def is_met(target, value):
    if target is None:
        return None
    return value >= target["least"] if "least" in target else value <= target["most"]


def make_row(part, what, ours, peer, figure, values, target=None, check=None, **details):
    """ours, peer: dicts with `name` and where it makes sense `time_us`; values: the figure of each round; check: what
    was compared before anything was timed."""
    if figure not in FIGURES:
        raise ValueError(figure)
    found = all_rounded(summarise(values))  # as the result keeps them: what is met there is met
    return {"part": part, "what": what, **details, "ours": ours, "peer": peer, "figure": figure, "rounds": len(values),
            "value": found,
            "target": target, "met": is_met(target, found["median"]), "check": check}


def side(name, seconds=None, unit=1e6, **details):
    """A side of a row, with its times in microseconds."""
    made = {"name": name, **details}
    if seconds is not None:
        made["time_us"] = summarise([value * unit for value in seconds])
    return made


HEAD = (f"# {'what':44} {'ours':26} {'peer':30} {'figure':>21} {'value':>9} {'least':>9} {'most':>9} {'target':>8}  "
        "met")


def met_text(row):
    return {None: "-", True: "yes", False: "NO"}[row["met"]]


def line_of(row):
    value = row["value"]
    return (f"  {row['what']:44} {row['ours']['name']:26} {row['peer']['name']:30} {row['figure']:>21} "
            f"{four_digits(value['median']):>9} {four_digits(value['min']):>9} {four_digits(value['max']):>9} "
            f"{target_text(row['target']):>8}  {met_text(row)}")
