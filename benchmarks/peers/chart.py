# SPDX-License-Identifier: Apache-2.0
"""Bars as an SVG, from numbers alone: the same numbers give the same bytes."""
import html
import math

LEFT, WIDTH, RIGHT, BAR, TOP = 480, 380, 90, 18, 46
COLOURS = {True: "#3a7d44", False: "#b3413a", None: "#4a6fa5"}


def width_of(value, lowest, highest):
    """On a logarithmic scale."""
    if highest <= lowest:
        return WIDTH / 2
    return WIDTH * (math.log10(value) - math.log10(lowest)) / (math.log10(highest) - math.log10(lowest))


def bars(title, entries):
    """entries: (label, value above 0, whether a target is met or None). A line stands at 1."""
    values = [value for _, value, _ in entries] + [1.0]
    lowest = 10 ** math.floor(math.log10(min(values)) - 1e-9)
    highest = 10 ** math.ceil(math.log10(max(values)) + 1e-9)
    height = TOP + BAR * len(entries) + 14
    one = LEFT + width_of(1.0, lowest, highest)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + RIGHT}" height="{height}" '
             'font-family="sans-serif" font-size="12">',
             '<rect width="100%" height="100%" fill="white"/>',
             f'<text x="{LEFT}" y="18" font-size="14">{html.escape(title)}</text>',
             f'<text x="{LEFT}" y="36" fill="#555">logarithmic; the line is 1; green: target met, red: missed, blue: no '
             'target</text>']
    for number, (label, value, met) in enumerate(entries):
        y = TOP + BAR * number
        end = LEFT + width_of(value, lowest, highest)
        lines += [f'<text x="{LEFT - 6}" y="{y + 13}" text-anchor="end">{html.escape(label)}</text>',
                  f'<rect x="{min(one, end):.1f}" y="{y + 3}" width="{max(abs(end - one), 0.5):.1f}" '
                  f'height="{BAR - 5}" fill="{COLOURS[met]}"/>',
                  f'<text x="{max(one, end) + 4:.1f}" y="{y + 13}">{value:.3g}</text>']
    lines += [f'<line x1="{one:.1f}" y1="{TOP}" x2="{one:.1f}" y2="{height - 12}" stroke="black"/>', "</svg>"]
    return "\n".join(lines) + "\n"
