# SPDX-License-Identifier: Apache-2.0
"""Pieces of Markdown, and numbers as words."""
import re

from row import four_digits


def cell(text):
    """On one line, and neither the end of a cell nor a tag."""
    return re.sub(r"<(?=[A-Za-z/!])", r"\\<", str(text).replace("|", "\\|").replace("\n", " "))


def table(heads, rows):
    """Lines; a head that begins with > stands over numbers."""
    lines = ["| " + " | ".join(head.removeprefix(">") for head in heads) + " |",
             "| " + " | ".join("--:" if head.startswith(">") else "---" for head in heads) + " |"]
    return [*lines, *["| " + " | ".join(cell(text) for text in texts) + " |" for texts in rows]]


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


def mebibytes(size):
    return f"{size / (1 << 20):.2f}"


def percent(share):
    return f"{100 * share:.1f}"


def figure(value):
    """Four digits, or a - where there is none."""
    return "-" if value is None else four_digits(value)
