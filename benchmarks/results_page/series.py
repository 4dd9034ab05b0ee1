# SPDX-License-Identifier: Apache-2.0
"""A line of a picture."""
import dataclasses

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#aa3377", "#b8860b", "#56b4e9", "#555555", "#7a4a1e")
DASHED = "7 4"


@dataclasses.dataclass(frozen=True)
class Series:
    """`points`: (x, y) in the order of x, all above 0. `colour`: its number among COLOURS.
    `width`: of the line; where lines coincide the first ones have to be the widest."""
    name: str
    points: tuple
    colour: int
    dashed: bool = False
    width: float = 2

    @property
    def stroke(self):
        return COLOURS[self.colour % len(COLOURS)]
