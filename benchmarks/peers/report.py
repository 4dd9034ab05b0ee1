# SPDX-License-Identifier: Apache-2.0
"""What a run has found so far: printed as it comes, and as JSON at the end."""
import contextlib
import os
import pathlib
import sys

import row
from figures import json_text
from refusal import BadFlag, Unavailable, WrongData

FORMAT = 1


class Report:
    def __init__(self, head, out=sys.stdout):
        self.head = head
        self.out = out
        self.rows = []
        self.sides = {}
        self.left_out = []
        self.failed = []
        self._part = None

    def add(self, made):
        if made["part"] != self._part:
            self._part = made["part"]
            self._print(f"#\n# {self._part}\n{row.HEAD}")
        self.rows.append(made)
        self._print(row.line_of(made))

    def record_side(self, name, facts, ranks=None):
        """Versions and flags of one side, for each number of ranks that it was started with."""
        self.sides[name if ranks is None else f"{name}, {ranks} rank{'s' if ranks > 1 else ''}"] = facts

    def leave_out(self, part, what, why):
        self.left_out.append({"part": part, "what": what, "why": why})
        self._print(f"# left out: {part}, {what}: {why}")

    def fail(self, part, what, why):
        self.failed.append({"part": part, "what": what, "why": why})
        self._print(f"# FAILED: {part}, {what}: {why}")

    @contextlib.contextmanager
    def attempt(self, part, what):
        """What cannot be had in its block is left out, and what goes wrong there has failed; the run goes on."""
        try:
            yield
        except Unavailable as error:
            self.leave_out(part, what, str(error))
        except WrongData as error:
            self.fail(part, what, str(error))

    def close(self):
        """The lines under the table."""
        missed = [made for made in self.rows if made["met"] is False]
        met = [made for made in self.rows if made["met"]]
        self._print(f"#\n# {len(self.rows)} rows; targets met: {len(met)}, missed: {len(missed)}; left out: "
                    f"{len(self.left_out)}; failed: {len(self.failed)}")

    def to_json(self):
        return json_text({"benchmark": "peers", "format": FORMAT, **self.head, "figures": row.FIGURES,
                          "sides": self.sides, "rows": self.rows, "left_out": self.left_out, "failed": self.failed})

    def _print(self, text):
        print(text, file=self.out, flush=True)


class ResultFile:
    """A file that is opened before anything is measured, so that an unwritable name costs nothing."""

    def __init__(self, name):
        self.name = name
        if name is None:
            return
        self.was_there = os.path.exists(name)
        try:
            with open(name, "a", encoding="utf-8"):
                pass
        except OSError as error:
            raise BadFlag(f"--json '{name}': expected a file that can be written ({error.strerror})") from None

    def write(self, text):
        if self.name is not None:
            pathlib.Path(self.name).write_text(text, encoding="utf-8")
            self.was_there = True

    def drop(self):
        """Nothing was written: a file that was not there before is gone again."""
        if self.name is not None and not self.was_there:
            pathlib.Path(self.name).unlink(missing_ok=True)
