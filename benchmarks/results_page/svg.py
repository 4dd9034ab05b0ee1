# SPDX-License-Identifier: Apache-2.0
"""An SVG from numbers alone: the same numbers give the same bytes. It is dark on a white ground of its own, whatever
the page's ground is."""
import html

INK, FAINT, GRID = "#222", "#555", "#ddd"


class Svg:
    def __init__(self, width, height, title):
        self.lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                      f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12" fill="{INK}">',
                      f"<title>{html.escape(title)}</title>", '<rect width="100%" height="100%" fill="white"/>']

    def text(self, x, y, text, anchor="start", size=12, fill=INK, turn=False, halo=False):
        """`halo`: what is drawn below the text does not strike it through."""
        white = ' stroke="white" stroke-width="4" stroke-linejoin="round" paint-order="stroke"' if halo else ""
        turned = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turn else ""
        self.lines.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
                          f'fill="{fill}"{white}{turned}>{html.escape(text)}</text>')

    def line(self, x1, y1, x2, y2, colour=INK, width=1, dashes=""):
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.lines.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
                          f'stroke-width="{width}"{dashed}/>')

    def path(self, points, colour, dashes="", width=2):
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.lines.append(f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="{width}"{dashed}/>')

    def dot(self, x, y, colour, radius=3):
        self.lines.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{colour}"/>')

    def box(self, x, y, width, height, colour):
        self.lines.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
                          f'fill="{colour}"/>')

    def finish(self):
        return "\n".join([*self.lines, "</svg>"]) + "\n"
