# SPDX-License-Identifier: Apache-2.0
"""A file that a benchmark has written with --json, and what the page says of all of them."""
import json

from figures import size_text
from text import cell, file_link, table

MEMBERS = {"date": str, "machine": dict, "rounds": int, "rows": list}
KINDS = ("collectives", "kernels", "policies", "peers", "checkpoints")
FORMAT = 1
# As the project's method asks for.
LEAST_ROUNDS = 15
# The load of a machine that does nothing else.
QUIET = 0.5


# Members that every result has, or that have a place of their own.
OWN = ("benchmark", "format", "date", "machine", "rows", "wrong", "rounds")
# How something was measured.
OF_MEASURED = ("pinned", "warmup")


class BadResult(Exception):
    """A file that cannot be on the page; the text names it, what it says and what was expected."""


def no_number(name):
    raise ValueError(f"{name} is no number")


class Result:
    """Its members by name; `stem` names the file without its ending."""

    def __init__(self, path, found):
        self.name, self.stem, self.found = path.name, path.stem, found
        self.kind = found["benchmark"]

    def __getitem__(self, member):
        return self.found[member]

    def get(self, member, otherwise=None):
        return self.found.get(member, otherwise)

    @property
    def is_prediction(self):
        """Policies of which nothing was measured."""
        return bool(self.get("predicted")) and not self["rows"]

    @property
    def is_quick(self):
        """A first look: no evidence for or against a target."""
        return not self.is_prediction and (bool(self.get("quick")) or self["rounds"] < LEAST_ROUNDS)

    @property
    def is_busy(self):
        """Whether others used the machine."""
        return self["machine"]["load_before"] > QUIET

    def is_of_machine(self, other):
        return all(self["machine"][member] == other["machine"][member] for member in ("processor", "processors"))


def read(path):
    """@raise BadResult for what is no result of a benchmark, was not checked or has wrong data"""
    try:
        found = json.loads(path.read_text(encoding="utf-8"), parse_constant=no_number)
    except ValueError as error:
        raise BadResult(f"{path.name}: expected JSON, as a benchmark's --json writes it: {error}") from None
    if not isinstance(found, dict) or found.get("benchmark") not in KINDS or found.get("format") != FORMAT:
        given = "no benchmark" if not isinstance(found, dict) or "benchmark" not in found else \
            f"benchmark '{found['benchmark']}', format {found.get('format')}"
        raise BadResult(f"{path.name}: {given}: expected a result of {', '.join(KINDS)}, format {FORMAT}")
    for name, kind in MEMBERS.items():
        if not isinstance(found.get(name), kind):
            raise BadResult(f"{path.name}: {name} {found.get(name)!r}: expected what benchmarks/run "
                            f"{found['benchmark']} --json writes, as docs/benchmarks.md says")
    if found.get("checks") == 0:
        raise BadResult(f"{path.name}: checks 0: expected a result whose data was checked")
    if found.get("wrong"):
        raise BadResult(f"{path.name}: wrong {found['wrong']}: expected a result without wrong data")
    return Result(path, found)


def short(value):
    """A member's value on one line, or None for what has a place of its own."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if isinstance(value, (str, int, float)) and value != "" else None


def method(result):
    """All members that are single values, and what makes the result less than one."""
    if result.is_prediction:
        yield "predicted, nothing was measured"
    if result.is_busy:
        yield "**others used the machine at the same time**"
    if result.is_quick:
        yield f"**a quick run: a first look, no result; the targets ask for {LEAST_ROUNDS} rounds**"
    build = result.get("versions") or result["build"]
    if "commit" in build:
        yield f"shardkit {build['shardkit']}, commit {build['commit']}"
    for name, value in sorted(result.found.items()):
        text = short(value)
        if name not in OWN and text is not None and not (result.is_prediction and name in OF_MEASURED):
            yield f"{name.replace('_', ' ')} {text}"


def origin(result):
    """Machine and compiler."""
    machine, build = result["machine"], result.get("versions") or result["build"]
    parts = [machine["processor"], f"{machine['processors']} processors usable", f"last cache "
             f"{size_text(machine['last_cache_bytes'])}", f"{machine['memory_bytes'] / (1 << 30):.0f} GiB",
             machine["system"]]
    made = [f"{'' if name in ('compiler', 'flags') else name + ' '}{build[name]}"
            for name in ("compiler", "flags", "python", "valgrind") if build.get(name)]
    return f"{', '.join(parts)}; {', '.join(made)}"


def measured_lines(results):
    """Where, when and how each was measured: what several have in common stands once."""
    origins = {}
    for result in results:
        origins.setdefault(origin(result), []).append(result.name)
    yield from (f"- {cell(text)}: {', '.join(names)}" for text, names in origins.items())
    yield ""
    yield from table(("file", "date", ">rounds", ">load before", "how"), [
        (file_link(result.name), result["date"], "-" if result.is_prediction else result["rounds"],
         f"{result['machine']['load_before']:.2f}", ", ".join(method(result))) for result in results])
