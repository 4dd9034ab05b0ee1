# SPDX-License-Identifier: Apache-2.0
"""Ratios as bars that begin at 1."""
from scale import Logarithmic
from svg import FAINT, Svg

WIDTH, RIGHT, BAR, TOP, LETTER = 400, 70, 18, 62, 6.6
COLOURS = {True: "#3a7d44", False: "#b3413a", None: "#4a6fa5"}


def ratio_bars(title, entries):
    """entries: (label, value above 0, whether a target is met or None). The scale is logarithmic."""
    left = 20 + LETTER * max(len(label) for label, _, _ in entries)
    height = TOP + BAR * len(entries) + 14
    x = Logarithmic([*(value for _, value, _ in entries), 1.0], left, left + WIDTH)
    svg = Svg(round(left + WIDTH + RIGHT), height, title)
    svg.text(12, 20, title, size=15)
    colours = "green: target met, red: missed, blue: no target" if any(met is not None for _, _, met in entries) else \
        "no targets"
    svg.text(12, 40, f"logarithmic, bars begin at 1; {colours}", fill=FAINT)
    for value, name in x.marks():
        svg.line(x.place(value), TOP - 2, x.place(value), height - 12, "#ddd")
        svg.text(x.place(value), TOP - 6, name, "middle", 10, FAINT)
    one = x.place(1.0)
    for number, (label, value, met) in enumerate(entries):
        y, end = TOP + BAR * number, x.place(value)
        svg.text(left - 8, y + 13, label, "end")
        svg.box(min(one, end), y + 3, max(abs(end - one), 0.5), BAR - 5, COLOURS[met])
        svg.text(max(one, end) + 4, y + 13, f"{value:.3g}")
    svg.line(one, TOP, one, height - 12)
    return svg.finish()
