# SPDX-License-Identifier: Apache-2.0
"""Numbers and sizes as text, and the form of every result's JSON (json_text.hpp writes the same)."""
import json
import math


def four_digits(value):
    size = abs(value)
    return f"{value:.3f}" if size < 9.9995 else f"{value:.2f}" if size < 99.995 else f"{value:.1f}" if size < 999.95 \
        else f"{value:.0f}"


def size_text(size):
    """Whole powers of 1024 as such: "8 MiB", and "67108860 B" where it is none."""
    size = round(size)
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def rough_size(size):
    """"1 MiB" for what was rounded down from it."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 0.999 * (1 << shift):
            return f"{size / (1 << shift):.3g} {unit}"
    return f"{size} B"


def rounded(value):
    """A number as a result keeps it: four digits that count, and whole from 1000 on."""
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    kept = value if abs(value) >= 999.95 else float(f"{value:.4g}")
    return math.floor(kept + 0.5) if abs(value) >= 999.95 or kept.is_integer() else kept


def all_rounded(value):
    if isinstance(value, dict):
        return {name: all_rounded(each) for name, each in value.items()}
    return [all_rounded(each) for each in value] if isinstance(value, list) else rounded(value)


def holds_objects(value):
    elements = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(isinstance(each, dict) or isinstance(each, list) and holds_objects(each) for each in elements)


def lines(value, indent, opened):
    """An object or array that holds objects has a line for each of its parts, but what stands in an array has one."""
    if not opened or not holds_objects(value):
        return json.dumps(value, allow_nan=False, ensure_ascii=False)
    inner = indent + " "
    if isinstance(value, dict):
        parts = [f"{json.dumps(name)}: {lines(each, inner, True)}" for name, each in value.items()]
        return "{\n" + ",\n".join(inner + part for part in parts) + f"\n{indent}}}"
    return "[\n" + ",\n".join(inner + lines(each, inner, False) for each in value) + f"\n{indent}]"


def json_text(value):
    """A line for each row."""
    return lines(all_rounded(value), "", True) + "\n"
