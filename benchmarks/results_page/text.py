# SPDX-License-Identifier: Apache-2.0
"""Pieces of Markdown, and numbers as words."""
import re

from figures import four_digits


def cell(text):
    """On one line, and neither the end of a cell nor a tag."""
    return re.sub(r"<(?=[A-Za-z/!])", r"\\<", str(text).replace("|", "\\|").replace("\n", " "))


def table(heads, rows):
    """Lines; a head that begins with > stands over numbers."""
    lines = ["| " + " | ".join(cell(head.removeprefix(">")) for head in heads) + " |",
             "| " + " | ".join("--:" if head.startswith(">") else "---" for head in heads) + " |"]
    return [*lines, *["| " + " | ".join(cell(text) for text in texts) + " |" for texts in rows], ""]


def mebibytes(size):
    return f"{size / (1 << 20):.2f}"


def percent(share):
    return f"{100 * share:.1f}"


def figure(value):
    """Four digits, or a - where there is none."""
    return "-" if value is None else four_digits(value)


def file_link(name):
    return f"[{name}](../benchmarks/results/{name})"
