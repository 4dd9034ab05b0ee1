# SPDX-License-Identifier: Apache-2.0
"""check_results_pictures.py ROOT: what the pictures of the page of results are made of: scales, bars and lines, and
where peers stand in them."""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])
sys.path[:0] = [str(ROOT / "benchmarks/results_page"), str(ROOT / "benchmarks/peers")]
from collectives_pictures import peer_series  # noqa: E402
from grouped_bars import grouped_bars  # noqa: E402
from line_chart import line_chart  # noqa: E402
from panel import Panel  # noqa: E402
from peer_times import peer_times  # noqa: E402
from ratio_bars import ratio_bars  # noqa: E402
from scale import Linear, Logarithmic  # noqa: E402
from series import COLOURS, Series  # noqa: E402
from stacked_bars import stacked_bars  # noqa: E402
from text import cell, rough_size, size_text  # noqa: E402

wrong = []


def expect(found, right, what):
    print(("ok: " if found == right else "WRONG: ") + what)
    if found != right:
        wrong.append(what)
        print(f"{found!r}, expected {right!r}")


def names(scale):
    return [name for _, name in scale.marks()]


def check_scales():
    expect(names(Linear([3.2, 5.4], 0, 60)), ["0", "1", "2", "3", "4", "5", "6"], "marks up to above the largest")
    expect(names(Linear([0.3], 0, 60)), ["0", "0.05", "0.1", "0.15", "0.2", "0.25", "0.3"], "marks up to the largest")
    expect(names(Linear([], 0, 60))[-1], "1", "a scale of nothing")
    expect(Linear([6], 10, 70).place(3), 40.0, "the middle of a linear scale")
    expect(names(Logarithmic([30, 2000], 0, 1)), ["10", "100", "1000", "10000"], "powers of ten around the values")
    expect(names(Logarithmic([100, 100], 0, 1)), ["100", "1000"], "one value")
    expect(Logarithmic([1, 100], 20, 0).place(10), 10.0, "the middle of a logarithmic scale, upside down")
    expect(names(Logarithmic([256, 64 << 20], 0, 1, 2, size_text)),
           ["256 B", "2 KiB", "16 KiB", "128 KiB", "1 MiB", "8 MiB", "64 MiB"], "sizes, few enough to be read")
    expect([rough_size(size) for size in (65520, 1048572, 300, 3 << 20)], ["64 KiB", "1 MiB", "300 B", "3 MiB"],
           "sizes that were rounded down")


def check_cells():
    expect([cell(text) for text in ("a|b\nc", "<vector>", "hybrid<2>", "<= 3", 1)],
           ["a\\|b c", "\\<vector>", "hybrid<2>", "<= 3", "1"], "cells that are neither ends nor tags")


def boxes(svg):
    """Widths of the bars, by colour."""
    return re.findall(r'<rect x="[\d.]+" y="[\d.]+" width="([\d.]+)" height="13.0" fill="([^"]+)"', svg)


def check_bars():
    svg = stacked_bars("title", "ms", [("a<b", [[("one", 2), ("two", 4)], [("one", 3)]])], 6)
    expect(boxes(svg), [("186.7", COLOURS[0]), ("373.3", COLOURS[1]), ("280.0", COLOURS[0])], "parts behind each other")
    expect("a&lt;b" in svg and ">6</text>" in svg, True, "labels and sums")
    svg = ratio_bars("title", [("slower", 0.1, False), ("faster", 10, True), ("same", 1, None)])
    expect([colour for _, colour in boxes(svg)], ["#b3413a", "#3a7d44", "#4a6fa5"], "missed, met, no target")
    expect([width for width, _ in boxes(svg)], ["200.0", "200.0", "0.5"], "from 1 on, either way")


def check_groups():
    groups = {"all_reduce 1 MiB": [("a", 10, True), ("b", 0.1, False)], "barrier": [("a", 1, None), ("b", 5000, None)]}
    svg = grouped_bars("title", groups)
    expect(re.findall(r'height="11.0" fill="([^"]+)"', svg), [COLOURS[0], COLOURS[1]] * 2, "a colour for each peer")
    expect([svg.count(f">{text}</text>") for text in ("all_reduce 1 MiB", "a", "b", "5000")], [1, 1, 1, 1],
           "groups and peers are named once")
    expect(re.findall(r'fill="#b3413a"[^>]*>([^<]*)<', svg), ["0.1"], "a value that misses its target")
    limited = stacked_bars("title", "ms", [("a", [[("one", 0.9)]])], 1.0)
    line = max(m.start() for m in re.finditer('<line [^>]*stroke="#222"', limited))
    expect(line < limited.index('height="13.0"') and 'paint-order="stroke"' in limited, True,
           "the limit lies behind the bars, and strikes no value through")


def check_lines():
    lines = (Series("ours", ((256, 1.0), (1024, 2.0)), 0), Series("limit", ((256, 4.0),), 0, dashed=True))
    svg = line_chart("title", [Panel("GB/s", lines, False, "size", size_text),
                               Panel("us", lines, True, "size", size_text)])
    expect(svg.count(">ours</text>"), 1, "a line of two panels is named once")
    expect(svg.count("<polyline"), 4, "lines")
    expect(svg.count("stroke-dasharray"), 3, "dashed lines, and one in the key")
    wide = line_chart("title", [Panel("ms", (Series("first", ((1, 1.0),), 0, width=8), Series("second", ((1, 1.0),), 1)),
                                      True, "ranks", str)])
    expect(re.findall(r'<polyline [^>]*stroke-width="(\d+)"', wide), ["8", "2"], "lines that coincide can be seen")
    width = float(re.search(r'width="(\d+)"', svg)[1])
    expect(max(float(x) for x in re.findall(r'[x]="([\d.]+)"', svg)) < width, True, "nothing begins outside")


class Fake(dict):
    """A result with members, of one machine."""

    kind, name, is_quick = "peers", "peers.json", False

    def is_of_machine(self, _other):
        return True


def check_peers():
    row = {"part": "collectives", "verb": "all_gather", "type": "float", "ranks": 3, "size": 1000,
           "peer": {"name": "mpi", "time_us": {"median": 2.0}}}
    found = peer_times([Fake(rows=[row])], Fake(group_size=3), "all_gather", "float")
    expect(found, {"mpi": {996: 2.0}}, "a peer's size is rounded down to whole pieces")
    found = peer_times([Fake(rows=[{**row, "verb": "all_reduce"}])], Fake(group_size=3), "all_reduce", "float")
    expect(found, {"mpi": {1000: 2.0}}, "and that of an all-reduce to whole elements")
    for change in ({"ranks": 2}, {"type": "half"}, {"verb": "all_reduce"}, {"part": "adamw"},
                   {"peer": {**row["peer"], "name": "std::barrier"}}):
        expect(peer_times([Fake(rows=[{**row, **change}])], Fake(group_size=3), "all_gather", "float"), {},
               f"not with {change}")
    rows = [{"size": 1200, "bus_factor": 0.5}, {"size": 12, "bus_factor": 0.5}]
    series = dict(peer_series(rows, {1200: 2.0}, "mpi", 3))
    expect(series["bandwidth"].points, ((1200, 0.3),), "a peer's bus bandwidth")
    expect(series["time"].points, ((1200, 2.0),), "a peer's time")


check_scales()
check_cells()
check_bars()
check_groups()
check_lines()
check_peers()
print(f"{len(wrong)} wrong")
sys.exit(1 if wrong else 0)
