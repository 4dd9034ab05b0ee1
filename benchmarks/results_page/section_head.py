# SPDX-License-Identifier: Apache-2.0
"""What stands over every result: where, when and how it was measured."""
from result import LEAST_ROUNDS
from text import cell, size_text

# Members that every result has, or that have a place of their own.
OWN = ("benchmark", "format", "date", "machine", "rows", "wrong", "rounds")
# How something was measured.
OF_MEASURED = ("pinned", "warmup")


def short(value):
    """A member's value on one line, or None for what has a place of its own."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if isinstance(value, (str, int, float)) and value != "" else None


def method(result):
    """All members that are single values."""
    for name, value in sorted(result.found.items()):
        text = short(value)
        if name not in OWN and text is not None and not (result.is_prediction and name in OF_MEASURED):
            yield f"{name.replace('_', ' ')} {cell(text)}"


def section_head(result):
    machine = result["machine"]
    lines = [f"## {result.name}", "",
             f"`benchmarks/run {result.kind}`, {result['date']}: {cell(machine['processor'])}, "
             f"{machine['processors']} processors usable, last cache {size_text(machine['last_cache_bytes'])}, "
             f"{machine['memory_bytes'] / (1 << 30):.0f} GiB, {cell(machine['system'])}, load before "
             f"{machine['load_before']:.2f}"
             + ("; predicted, nothing was measured." if result.is_prediction else f"; {result['rounds']} rounds."), ""]
    if result.is_busy:
        lines += ["**Others used the machine at the same time.**", ""]
    if result.is_quick:
        lines += [f"**A quick run: a first look, no result. The targets ask for {LEAST_ROUNDS} rounds.**", ""]
    if result.kind != "peers":
        build = result["build"]
        tree = f"shardkit {cell(build['shardkit'])}, commit {cell(build['commit'])}; " if "commit" in build else ""
        lines += [f"{cell(build['compiler'])}, {cell(build['flags'])}; {tree}{', '.join(method(result))}.", ""]
    return lines
