# SPDX-License-Identifier: Apache-2.0
"""Bars of several parts behind each other, one or more for each label."""
from scale import Linear
from series import COLOURS
from svg import FAINT, GRID, Svg

WIDTH, RIGHT, BAR, GAP, TOP, BOTTOM, LETTER = 560, 90, 15, 9, 70, 46, 6.8


def key(svg, names, x):
    for name, colour in names.items():
        svg.box(x, 36, 14, 12, colour)
        svg.text(x + 20, 46, name)
        x += 38 + LETTER * len(name)


def stacked_bars(title, unit, entries, limit=None):
    """entries: (label, bars); a bar is a list of (name of the part, value of at least 0) and is as long as their sum,
    which stands behind it. A line stands behind them at the limit."""
    colours = {}
    for _, bars in entries:
        for bar in bars:
            for name, _ in bar:
                colours.setdefault(name, COLOURS[len(colours) % len(COLOURS)])
    left = 20 + LETTER * max(len(label) for label, _ in entries)
    bottom = TOP + sum(BAR * len(bars) + GAP for _, bars in entries)
    sums = [sum(value for _, value in bar) for _, bars in entries for bar in bars]
    x = Linear([*sums, limit or 0], left, left + WIDTH)
    svg = Svg(round(left + WIDTH + RIGHT), bottom + BOTTOM, title)
    svg.text(12, 22, title, size=15)
    key(svg, colours, 12)
    for value, name in x.marks():
        svg.line(x.place(value), TOP - 6, x.place(value), bottom, GRID)
        svg.text(x.place(value), bottom + 16, name, "middle", 11)
    svg.text(left + WIDTH / 2, bottom + 36, unit, "middle", fill=FAINT)
    for value in (0, limit):
        if value is not None:
            svg.line(x.place(value), TOP - 6, x.place(value), bottom)
    y = TOP
    for label, bars in entries:
        svg.text(left - 8, y + BAR * len(bars) / 2 + 4, label, "end")
        for bar in bars:
            at = 0.0
            for name, value in bar:
                svg.box(x.place(at), y + 1, x.place(at + value) - x.place(at), BAR - 2, colours[name])
                at += value
            svg.text(x.place(at) + 5, y + 12, f"{at:.4g}", size=11, halo=True)
            y += BAR
        y += GAP
    return svg.finish()
