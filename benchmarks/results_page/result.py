# SPDX-License-Identifier: Apache-2.0
"""A file that a benchmark has written with --json."""
import json

from bad_result import BadResult

MEMBERS = {"date": str, "machine": dict, "rounds": int, "rows": list}
KINDS = ("collectives", "kernels", "policies", "peers")
FORMAT = 1
# As the project's method asks for.
LEAST_ROUNDS = 15
# The load of a machine that does nothing else.
QUIET = 0.5


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
