# SPDX-License-Identifier: Apache-2.0
"""An aim of the project."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Target:
    """`bound`: {"least": value} or {"most": value}, as in the JSON of peers; `by`: what measures it, in words; `without`: why there
    may be no result."""
    id: str
    what: str
    bound: dict
    by: str
    without: str = "-"

    def rank(self, value):
        """Grows with how good a value is."""
        return value if "least" in self.bound else -value
