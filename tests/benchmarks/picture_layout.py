# SPDX-License-Identifier: Apache-2.0
"""Whether the texts of a picture by gnuplot can be read: all of them lie inside it, none lies on another, and none in a
plot's frame, where the curves are."""
import html
import itertools
import math
import re

GROUP = re.compile(r'<g transform="translate\(([-\d.]+),([-\d.]+)\)(?: rotate\(([-\d.]+)\))?"[^>]*?font-size="([\d.]+)"'
                   r'\s+text-anchor="(\w+)">\s*<text>(.*?)</text>', re.DOTALL)
FRAME = re.compile(r"d='M([\d.]+),([\d.]+) L([\d.]+),([\d.]+) L([\d.]+),([\d.]+) L([\d.]+),([\d.]+) L\1,\2 Z")
# Of a letter over the font's size, on average.
LETTER = 0.55


def boxes(svg):
    """(text, its four corners)"""
    for x, y, angle, size, anchor, text in GROUP.findall(svg):
        text = html.unescape(re.sub("<[^>]*>", "", text)).strip()
        x, y, size, turned = float(x), float(y), float(size), math.radians(float(angle or 0))
        width = LETTER * size * len(text)
        left = {"start": 0, "middle": -width / 2, "end": -width}[anchor]
        yield text, [(x + a * math.cos(turned) - b * math.sin(turned), y + a * math.sin(turned) + b * math.cos(turned))
                     for a, b in ((left, -0.7 * size), (left + width, -0.7 * size), (left + width, 0), (left, 0))]


def frames(svg):
    for numbers in FRAME.findall(svg):
        xs, ys = sorted(map(float, numbers[::2])), sorted(map(float, numbers[1::2]))
        yield [(xs[0], ys[0]), (xs[-1], ys[0]), (xs[-1], ys[-1]), (xs[0], ys[-1])]


def meet(one, other):
    """Whether two convex shapes have points in common: no line along a side lies between them."""
    for shape in (one, other):
        for (ax, ay), (bx, by) in zip(shape, shape[1:] + shape[:1]):
            along = [[(x - ax) * (by - ay) - (y - ay) * (bx - ax) for x, y in each] for each in (one, other)]
            if max(along[0]) <= min(along[1]) or max(along[1]) <= min(along[0]):
                return False
    return True


def layout_problems(svg):
    """Texts, one for each thing that cannot be read."""
    width, height = map(float, re.search(r'viewBox="0 0 (\d+) (\d+)"', svg).groups())
    texts = [(text, corners) for text, corners in boxes(svg) if text]
    found = [f"'{text}' is cut off" for text, corners in texts
             if not all(0 <= x <= width and 0 <= y <= height for x, y in corners)]
    found += [f"'{a}' lies on '{b}'" for (a, one), (b, other) in itertools.combinations(texts, 2) if meet(one, other)]
    found += [f"'{text}' lies in a plot" for text, corners in texts for frame in frames(svg) if meet(corners, frame)]
    return found if texts and any(frames(svg)) else ["no texts or no frame"]
