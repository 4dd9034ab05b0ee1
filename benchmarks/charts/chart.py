# SPDX-License-Identifier: Apache-2.0
"""Two kinds of charts, as scripts of gnuplot: lines over a logarithmic axis, and bars to the right."""
import dataclasses
import math

from figures import size_text
from gnuplot import Drawing, quoted

# Pixels. Letters as wide as they come, since the reader's font is not known.
LETTER, LINE, TOP, BOTTOM, LEFT, GAP = 7.4, 20, 56, 60, 76, 18
PANEL_WIDTH, PANEL_HEIGHT, BAR, BARS_WIDTH = 330, 270, 14, 440
LOOKS = 12  # of the style; from there on colours come again
DECADES = 30  # from so many times on an axis is logarithmic


@dataclasses.dataclass(frozen=True)
class Series:
    """`points`: (x, y) in the order of x. `look`: which line type of the style. A dashed line has no points and no
    name of its own: it belongs to the one of its look. `width`: where lines coincide the first must be the widest."""
    name: str
    points: tuple
    look: int
    dashed: bool = False
    width: float = 2

    def drawn(self):
        form = "lines dashtype 2" if self.dashed else "linespoints"
        point = f" pointtype {self.look % 13 + 1}" if self.look > LOOKS and not self.dashed else ""
        return f"with {form} linetype {self.look} linewidth {self.width:g}{point}"


@dataclasses.dataclass(frozen=True)
class Panel:
    """Lines over x, in bytes or in numbers. `one`: a line stands at y = 1. `decades`: y is logarithmic, however few."""
    y_title: str
    series: tuple
    x_title: str = "size"
    one: bool = False
    decades: bool = False


def power_range(values, base):
    """From a power to a power around the values, with some room for a single one."""
    low = math.floor(math.log(min(values), base) + 1e-9)
    high = max(math.ceil(math.log(max(values), base) - 1e-9), low + 1)
    return float(base) ** low, float(base) ** high


def x_axis(panel):
    xs = [x for each in panel.series for x, _ in each.points]
    low, high = power_range(xs, 2)
    powers = round(math.log2(high / low))
    marks = [low * 2 ** power for power in range(0, powers + 1, math.ceil(powers / 6))]
    names = [size_text(mark) if panel.x_title == "size" else f"{mark:g}" for mark in marks]
    return [f"set logscale x 2\nset xrange [{low / 1.2:.6g}:{high * 1.2:.6g}]\nset xlabel {quoted(panel.x_title)}",
            "set xtics (" + ", ".join(f"{quoted(name)} {mark:.9g}" for name, mark in zip(names, marks)) + ")"]


def y_axis(panel):
    """Logarithmic where the values span decades, or where it is asked for."""
    ys = [y for each in panel.series for _, y in each.points if y > 0] + ([1.0] if panel.one else [])
    if ys and (panel.decades or max(ys) / min(ys) >= DECADES):
        low, high = power_range(ys, 10)
        return [f"set logscale y\nset yrange [{low:.6g}:{high:.6g}]\nset format y '%g'"]
    return [f"unset logscale y\nset yrange [0:{1.08 * max(ys, default=1):.6g}]"]


def blocks(series, prefix):
    """The points as gnuplot's data, a block for each line."""
    for number, each in enumerate(series):
        yield "\n".join([f"${prefix}_{number} << EOD", *(f"{x:.6g} {y:.6g}" for x, y in each.points), "EOD"])


def margins(left, right, top, bottom, width, height):
    """In pixels from the upper left corner."""
    return (f"set lmargin at screen {left / width:.5f}\nset rmargin at screen {right / width:.5f}\n"
            f"set tmargin at screen {1 - top / height:.5f}\nset bmargin at screen {1 - bottom / height:.5f}")


def line_chart(title, panels, dashed=""):
    """Panels beside each other, with the names of their lines at the right, each once; `dashed`: what is dashed."""
    names = {each.name: each for panel in panels for each in panel.series if not each.dashed}
    across = LEFT + PANEL_WIDTH + GAP
    longest = max(map(len, [*names, dashed]))
    width = round(max(across * len(panels) + 60 + LETTER * longest, 40 + 1.2 * LETTER * len(title)))
    height = TOP + BOTTOM + max(PANEL_HEIGHT, LINE * (len(names) + 2))
    lines = [block for number, panel in enumerate(panels) for block in blocks(panel.series, f"panel{number}")]
    lines.append("set multiplot\n"
                 f"set label 1 {quoted(title)} at screen {LEFT / width:.5f},{1 - 22 / height:.5f} font ',15'")
    for number, panel in enumerate(panels):
        lines += [*x_axis(panel), *y_axis(panel), "unset arrow"]
        if panel.one:
            lines.append("set arrow 1 from graph 0,first 1 to graph 1,first 1 nohead linecolor 'black' linewidth 1")
        begin = across * number + LEFT
        lines += [margins(begin, begin + PANEL_WIDTH, TOP, height - BOTTOM, width, height),
                  f"set label 2 {quoted(panel.y_title)} at graph 0,1 offset 0,0.8 textcolor rgb '#555555'"]
        drawn = [f"$panel{number}_{i} {each.drawn()} notitle" for i, each in enumerate(panel.series)]
        if number == len(panels) - 1:
            lines.append(f"set key at screen {(across * len(panels)) / width:.5f},{1 - TOP / height:.5f} left top Left "
                         f"reverse samplen 3 spacing 1")
            drawn += [f"keyentry {each.drawn()} title {quoted(name)}" for name, each in names.items()]
            drawn += [f"keyentry with lines dashtype 2 linecolor 'black' title {quoted(dashed)}"] if dashed else []
        lines += ["plot " + ", \\\n  ".join(drawn), "unset label 1"]
    return Drawing(width, height, "\n".join([*lines, "unset multiplot\n"]))


def figure(value):
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"


@dataclasses.dataclass(frozen=True)
class Bar:
    """`parts`: (name, value of at least 0), behind each other. `missed`: the sum, which stands behind, misses an aim."""
    parts: tuple
    missed: bool = False

    @property
    def sum(self):
        return sum(value for _, value in self.parts)


def boxes(groups, looks, one):
    """{look: lines of x, y, x from, x to, y from, y to}, from above to below; and the row of each group's middle."""
    found, middles, row = {}, [], 0.0
    for label, bars in groups:
        middles.append((label, row + len(bars) / 2))
        for bar in bars:
            at = one or 0.0
            for name, value in bar.parts:
                end = value if one else at + value
                found.setdefault(looks[name], []).append(
                    f"{at:.6g} {row:g} {min(at, end):.6g} {max(at, end):.6g} {row + 0.08:g} {row + 0.92:g}")
                at = end
            row += 1
        row += 0.6
    return found, middles, row - 0.6


def ratio_axis(low, high):
    """Powers of ten, and 2 and 5 of them where these are few."""
    powers = [10.0 ** power for power in range(round(math.log10(low)), round(math.log10(high)) + 1)]
    marks = powers if len(powers) > 3 else [power * by for power in powers for by in (1, 2, 5) if power * by <= high]
    return "set logscale x\nset xtics (" + ", ".join(f"'{mark:.6g}' {mark:.6g}" for mark in marks) + ")"


def bar_chart(title, unit, groups, ratio=False, limit=None):
    """groups: (label, bars of class Bar); a colour for each name. A bar's sum stands at the right. `ratio`: the axis is
    logarithmic and bars begin at 1. A line stands at `limit`."""
    names = list(dict.fromkeys(name for _, bars in groups for bar in bars for name, _ in bar.parts))
    looks = {name: number % LOOKS + 1 for number, name in enumerate(names)}
    found, middles, rows = boxes(groups, looks, 1.0 if ratio else None)
    left = round(20 + LETTER * max(len(label) for label, _ in groups))
    key = [(name, LETTER * len(name) + 42) for name in names] if len(names) > 1 else []
    width = left + round(max(BARS_WIDTH + 110, 40 + LETTER * 1.15 * len(title), sum(room for _, room in key)))
    top = TOP + (LINE if key else 0)
    height = round(top + BOTTOM + BAR * rows)
    sums = [bar.sum for _, bars in groups for bar in bars] + ([1.0] if ratio else [0.0]) + ([limit] if limit else [])
    low, high = power_range(sums, 10) if ratio else (0, 1.05 * max(sums) or 1)
    lines = [f"$look{look} << EOD\n" + "\n".join(texts) + "\nEOD" for look, texts in found.items()]
    lines += [margins(left, left + BARS_WIDTH, top, height - BOTTOM, width, height),
              f"set label {quoted(title)} at screen {12 / width:.5f},{1 - 22 / height:.5f} font ',15'",
              f"set xlabel {quoted(unit)}\nset yrange [{rows:g}:0]\nset xrange [{low:.6g}:{high:.6g}]",
              *([ratio_axis(low, high)] if ratio else []), "set grid noytics",
              "set ytics scale 0 (" + ", ".join(f"{quoted(label)} {middle:g}" for label, middle in middles) + ")"]
    at = left
    for name, room in key:
        y = 1 - (TOP - 8) / height
        lines += [f"set object rectangle from screen {at / width:.5f},{y - 6 / height:.5f} to "
                  f"screen {(at + 14) / width:.5f},{y + 6 / height:.5f} fillcolor linetype {looks[name]}",
                  f"set label {quoted(name)} at screen {(at + 20) / width:.5f},{y:.5f}"]
        at += room
    for mark in ([1.0] if ratio else []) + ([limit] if limit else []):
        lines.append(f"set arrow from first {mark:g},graph 0 to first {mark:g},graph 1 nohead back linecolor 'black' "
                     "linewidth 1")
    row = 0.0
    for _, bars in groups:
        for bar in bars:
            colour = " textcolor rgb '#b3413a'" if bar.missed else ""
            text = figure(bar.sum) + (" missed" if bar.missed else "")
            lines.append(f"set label {quoted(text)} at graph 1.015,first {row + 0.5:g} font ',11'{colour}")
            row += 1
        row += 0.6
    lines.append("plot " + ", \\\n  ".join(f"$look{look} with boxxyerror linetype {look}" for look in sorted(found)))
    return Drawing(width, height, "\n".join(lines) + "\n")
