# SPDX-License-Identifier: Apache-2.0
"""Ratios as bars that begin at 1, in groups that have the same bars; a colour says whose bar it is."""
from scale import Logarithmic
from series import COLOURS
from svg import FAINT, GRID, Svg

WIDTH, RIGHT, BAR, GAP, TOP, LETTER = 560, 90, 13, 9, 84, 6.8
MISSED = "#b3413a"


def grouped_bars(title, groups):
    """groups: {label: [(name, value above 0, whether a target is met or None)]}. The scale is logarithmic."""
    entries = [entry for group in groups.values() for entry in group]
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(dict.fromkeys(name for name, _, _ in entries))}
    left = 20 + LETTER * max(len(label) for label in groups)
    bottom = TOP + sum(BAR * len(group) + GAP for group in groups.values())
    x = Logarithmic([*(value for _, value, _ in entries), 1.0], left, left + WIDTH)
    svg = Svg(round(max(left + WIDTH + RIGHT, 40 + sum(38 + LETTER * len(name) for name in colours))), bottom + 14, title)
    svg.text(12, 20, title, size=15)
    svg.text(12, 38, "logarithmic, bars begin at 1: to the right the library is faster; a value in red misses its target",
             fill=FAINT)
    at = 12.0
    for name, colour in colours.items():
        svg.box(at, 47, 14, 12, colour)
        svg.text(at + 20, 57, name)
        at += 38 + LETTER * len(name)
    for value, name in x.marks():
        svg.line(x.place(value), TOP - 4, x.place(value), bottom, GRID)
        svg.text(x.place(value), TOP - 8, name, "middle", 10, FAINT)
    one = x.place(1.0)
    svg.line(one, TOP - 4, one, bottom)
    y = TOP
    for label, group in groups.items():
        svg.text(left - 8, y + BAR * len(group) / 2 + 4, label, "end")
        for name, value, met in group:
            end = x.place(value)
            svg.box(min(one, end), y + 1, max(abs(end - one), 0.5), BAR - 2, colours[name])
            svg.text(max(one, end) + 4, y + 11, f"{value:.3g}" if value < 999.5 else f"{value:.0f}", size=11, halo=True,
                     **({"fill": MISSED} if met is False else {}))
            y += BAR
        y += GAP
    return svg.finish()
