# SPDX-License-Identifier: Apache-2.0
"""Axes and the lines between them."""
import dataclasses

from scale import Linear, Logarithmic
from series import DASHED
from svg import FAINT, GRID

LEFT, WIDTH, TOP, HEIGHT, BOTTOM = 62, 360, 56, 270, 46


@dataclasses.dataclass(frozen=True)
class Panel:
    """x is logarithmic to base 2; `y_is_log` says what y is. `one`: a line stands at y = 1."""
    y_title: str
    series: tuple
    y_is_log: bool
    x_title: str
    x_name: object
    one: bool = False

    def scales(self, left):
        xs = [x for each in self.series for x, _ in each.points]
        ys = [y for each in self.series for _, y in each.points] + ([1.0] if self.one else [])
        x = Logarithmic(xs, left + LEFT, left + LEFT + WIDTH, 2, self.x_name)
        bottom = TOP + HEIGHT
        return x, Logarithmic(ys, bottom, TOP) if self.y_is_log else Linear(ys, bottom, TOP)

    def draw(self, svg, left):
        """From `left` on, LEFT + WIDTH wide."""
        x, y = self.scales(left)
        begin, end, bottom = left + LEFT, left + LEFT + WIDTH, TOP + HEIGHT
        for value, name in y.marks():
            svg.line(begin, y.place(value), end, y.place(value), GRID)
            svg.text(begin - 6, y.place(value) + 4, name, "end", 11)
        for value, name in x.marks():
            svg.line(x.place(value), TOP, x.place(value), bottom, GRID)
            svg.text(x.place(value), bottom + 16, name, "middle", 11)
        svg.line(begin, TOP, begin, bottom)
        svg.line(begin, bottom, end, bottom)
        if self.one:
            svg.line(begin, y.place(1), end, y.place(1))
        svg.text(begin, TOP - 10, self.y_title, fill=FAINT)
        svg.text((begin + end) / 2, bottom + 36, self.x_title, "middle", fill=FAINT)
        for each in self.series:
            placed = [(x.place(a), y.place(b)) for a, b in each.points]
            svg.path(placed, each.stroke, DASHED if each.dashed else "", each.width)
            if not each.dashed:
                for a, b in placed:
                    svg.dot(a, b, each.stroke, 2 + each.width / 2)
