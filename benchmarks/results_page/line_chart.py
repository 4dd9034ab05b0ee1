# SPDX-License-Identifier: Apache-2.0
"""Panels beside each other, with the names of their lines at the right."""
from panel import BOTTOM, HEIGHT, LEFT, TOP, WIDTH
from series import DASHED
from svg import Svg

GAP, KEY_LINE, KEY_ROW, LETTER = 16, 30, 19, 7


def line_chart(title, panels):
    """A line that several panels have is named once."""
    names = {each.name: each for panel in panels for each in panel.series}
    across = LEFT + WIDTH + GAP
    key = across * len(panels) + GAP
    width = key + KEY_LINE + 8 + LETTER * max(map(len, names)) + GAP
    height = TOP + max(HEIGHT, KEY_ROW * len(names)) + BOTTOM
    svg = Svg(width, height, title)
    svg.text(LEFT, 22, title, size=15)
    for number, panel in enumerate(panels):
        panel.draw(svg, across * number)
    for number, each in enumerate(names.values()):
        y = TOP + 10 + KEY_ROW * number
        svg.line(key, y, key + KEY_LINE, y, each.stroke, each.width, DASHED if each.dashed else "")
        if not each.dashed:
            svg.dot(key + KEY_LINE / 2, y, each.stroke, 2 + each.width / 2)
        svg.text(key + KEY_LINE + 8, y + 4, each.name)
    return svg.finish()
