# SPDX-License-Identifier: Apache-2.0
"""check_charts.py ROOT: what charts are made of: axes, lines and bars, where peers stand in them, and that their texts
can be read; sizes and cells as text."""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import expectation

ROOT = pathlib.Path(sys.argv[1])
sys.path[:0] = [str(ROOT / "benchmarks" / name) for name in ("charts", "results_page", "peers", "common")]
from chart import LOOKS, Bar, Panel, Series, bar_chart, line_chart, ratio_axis, x_axis, y_axis  # noqa: E402
from collectives_charts import bandwidth_chart, share_chart  # noqa: E402
from figures import rough_size, rounded, size_text  # noqa: E402
from gnuplot import Drawing, NoGnuplot, draw, is_of, stamped, style  # noqa: E402
from peer_times import PeerTime, peer_times  # noqa: E402
from policies_charts import predicted_chart  # noqa: E402
from picture_layout import boxes as boxes_of_texts, layout_problems  # noqa: E402
from text import cell  # noqa: E402


def expect(found, right, what):
    expectation.expect(found == right, what, f"{found!r}, expected {right!r}")


def lines_of(*points, **more):
    return Panel("y", (Series("line", points, 1),), **more)


def marks(axis):
    """Names of an axis's marks."""
    return re.findall(r"'([^']*)' [\d.]", "\n".join(axis).rsplit("set xtics", maxsplit=1)[1])


def check_axes():
    expect(y_axis(lines_of((1, 30), (2, 2000))), ["set logscale y\nset yrange [10:10000]\nset format y '%g'"],
           "powers of ten around values that span decades")
    expect(y_axis(lines_of((1, 3.2), (2, 5), decades=True))[0].split("\n")[:2], ["set logscale y", "set yrange [1:10]"],
           "and where it is asked for")
    expect(y_axis(lines_of((1, 3.2), (2, 5)))[0], "unset logscale y\nset yrange [0:5.4]", "from 0 to above the largest")
    expect(y_axis(lines_of((1, 0)))[0], "unset logscale y\nset yrange [0:1.08]", "one rank alone has no bandwidth")
    expect(y_axis(lines_of((1, 0.1), (2, 0.5), one=True))[0], "unset logscale y\nset yrange [0:1.08]", "1 is in sight")
    expect(marks(x_axis(lines_of((256, 1), (64 << 20, 1)))),
           ["256 B", "2 KiB", "16 KiB", "128 KiB", "1 MiB", "8 MiB", "64 MiB"], "sizes, few enough to be read")
    expect(marks(x_axis(lines_of((8, 1), (4096, 1), x_title="ranks"))), ["8", "32", "128", "512", "2048"], "ranks")
    expect(marks(x_axis(lines_of((100, 1)))), ["64 B", "128 B"], "one value")
    expect(marks([ratio_axis(0.1, 100)]), ["0.1", "1", "10", "100"], "powers of ten")
    expect(marks([ratio_axis(1, 10)]), ["1", "2", "5", "10"], "and between them where these are few")


def check_texts():
    expect([rough_size(size) for size in (65520, 1048572, 300, 3 << 20)], ["64 KiB", "1 MiB", "300 B", "3 MiB"],
           "sizes that were rounded down")
    expect([size_text(size) for size in (8 << 20, 67108860)], ["8 MiB", "67108860 B"], "whole sizes, and others")
    expect([cell(text) for text in ("a|b\nc", "<vector>", "hybrid<2>", "<= 3", 1)],
           ["a\\|b c", "\\<vector>", "hybrid<2>", "<= 3", "1"], "cells that are neither ends nor tags")
    expect([rounded(value) for value in (0.123449, 99.996, 999.96, 16777216.5, 12, True, "1.23456")],
           [0.1234, 100, 1000, 16777217, 12, True, "1.23456"], "four digits of a result's numbers")


def boxes(drawing):
    """(line type, from, to) of the bars."""
    blocks = re.findall(r"\$look(\d) << EOD\n(.*?)\nEOD", drawing.script, re.DOTALL)
    return [(int(look), *map(float, line.split()[2:4])) for look, block in blocks for line in block.splitlines()]


def check_bars():
    drawing = bar_chart("title", "ms", [("a", [Bar((("one", 2), ("two", 4))), Bar((("one", 3),))])], limit=6)
    expect(sorted(boxes(drawing)), [(1, 0, 2), (1, 0, 3), (2, 2, 6)], "parts behind each other, a look for each name")
    expect([drawing.script.count(text) for text in ("set label '6' ", "set label '3' ", "set label 'two' ")], [1, 1, 1],
           "sums, and names once")
    expect("from first 6,graph 0 to first 6,graph 1 nohead back" in drawing.script, True, "the limit lies behind the bars")
    groups = [("all_reduce", [Bar((("a", 10),)), Bar((("b", 0.1),), True)]), ("barrier", [Bar((("a", 1),)), Bar((("b", 5000),))])]
    drawing = bar_chart("title", "times", groups, ratio=True)
    expect(sorted(boxes(drawing)), [(1, 1, 1), (1, 1, 10), (2, 0.1, 1), (2, 1, 5000)], "from 1 on, either way")
    expect(re.findall(r"set label '([^']*)'[^\n]*textcolor rgb '#b3413a'", drawing.script), ["0.1 missed"],
           "a value that misses its target")
    expect([drawing.script.count(f"'{text}' ") for text in ("all_reduce", "barrier", "a", "5000")], [1, 1, 1, 1],
           "groups and names once")


def check_lines():
    lines = (Series("ours", ((256, 1.0), (1024, 2.0)), 1), Series("ours", ((256, 4.0),), 1, dashed=True))
    drawing = line_chart("it's", [Panel("GB/s", lines), Panel("us", lines)], "dashed: limit")
    expect(drawing.script.count("title 'ours'"), 1, "a line of two panels is named once")
    expect(drawing.script.count("notitle"), 4, "lines")
    expect(drawing.script.count("dashtype 2"), 3, "dashed lines, and one in the key")
    expect("'it''s'" in drawing.script, True, "a quote ends no text")
    wide = line_chart("title", [Panel("ms", (Series("first", ((1, 1.0),), 1, width=8), Series("second", ((1, 1.0),), 2)))])
    expect(re.findall(r"linetype \d linewidth (\d) notitle", wide.script), ["8", "2"], "lines that coincide can be seen")


def check_looks():
    colours = re.findall(r"^set linetype (\d+) linecolor rgb '(#\w+)'", style(), re.MULTILINE)
    expect([int(number) for number, _ in colours], list(range(1, LOOKS + 1)), "a line type for each look")
    expect(len({colour for _, colour in colours}), LOOKS, "and a colour of its own")
    expect(LOOKS >= 12, True, "more than the lines of all verbs out of place and in place")


def check_predicted():
    """A policy's name is that of the tables, unless its groups grow with the ranks."""
    def names(*rows):
        members = {"step_no_overlap_us": 2e3, "step_full_overlap_us": 1e3}
        found = [{"ranks": ranks, "policy": "hybrid_shard", "shard_group": group, **members} for ranks, group in rows]
        drawing = predicted_chart({"model": {"description": "toy", "type": "float"}, "predicted": {"rows": found}})[1]
        return re.findall(r"keyentry .*? title '([^']*)'", drawing.script), len(blocks(drawing)[0].splitlines())

    expect(names((16, 8), (8, 8)), (["hybrid_shard<8>"], 2), "one group, as the tables write it")
    expect(names((8, 2), (16, 4)), (["hybrid_shard"], 2), "groups that grow: one line")


def all_reduce_row(**members):
    """4000 bytes between ranks in 2 us, the copy in 1 us."""
    return {"verb": "all_reduce", "type": "float", "redop": "sum", "size": 4000, "bus_factor": 1.5, "in_place": None,
            "out_of_place": {"busbw_gb_s": 3, "time_us": {"median": 2}, "copy": {"busbw_gb_s": 6}, "share_of_copy": 0.5},
            **members}


def result_of(*rows):
    return {"engine": "threads", "group_size": 3, "groups": 1, "rows": list(rows)}


def blocks(drawing):
    return re.findall(r"<< EOD\n(.*?)\nEOD", drawing.script, re.DOTALL)


def check_peers():
    row = {"part": "collectives", "verb": "all_gather", "type": "float", "ranks": 3, "size": 1000,
           "peer": {"name": "mpi", "time_us": {"median": 2.0}}}
    expect(peer_times([row, row]), [PeerTime("mpi", "all_gather", "float", 3, 996, 2.0)],
           "a peer's size is rounded down to whole pieces, and a peer of two rows was measured once")
    expect(peer_times([{**row, "verb": "all_reduce"}])[0].size, 1000, "that of an all-reduce to whole elements")
    for change in ({"part": "adamw"}, {"verb": "barrier"}, {"peer": {**row["peer"], "name": "std::barrier"}}):
        expect(peer_times([{**row, **change}]), [], f"not with {change}")
    mine = all_reduce_row()
    peer = PeerTime("openmpi", "all_reduce", "float", 3, 4000, 8.0)
    drawing = bandwidth_chart(result_of(mine), [mine], [peer])[1]
    expect(blocks(drawing), ["4000 3", "4000 6", "4000 0.75", "4000 2", "4000 8"],
           "a peer's line has its time, and the bus bandwidth of that time; it has no copy")
    expect("'openmpi: all_reduce'" in drawing.script, True, "and is named")
    for change in ({"verb": "all_gather"}, {"type": "double"}, {"size": 4004}, {"redop": "max"}):
        other = all_reduce_row(**change)
        expect(peer.belongs_to(other) or "openmpi" in bandwidth_chart(result_of(other), [other], [peer])[1].script, False,
               f"no peer's line beside {change}")


def check_plot(folder):
    """The command that draws a result from a file."""
    result = {"benchmark": "collectives", **result_of(all_reduce_row(in_place=all_reduce_row()["out_of_place"]))}
    plot = [sys.executable, "-B", str(ROOT / "benchmarks/charts/plot.py")]
    file, picture = folder / "result.json", folder / "a.svg"
    file.write_text(json.dumps(result), encoding="utf-8")
    if shutil.which("gnuplot"):
        done = subprocess.run([*plot, file, picture], capture_output=True, text=True, check=False)
        expect((done.returncode, done.stderr), (0, ""), "a file is drawn")
        expect("all_reduce" in picture.read_text(encoding="utf-8"), True, "with the names of its verbs")
    file.write_text("[]", encoding="utf-8")
    for given, text in (([file, picture], "expected what --json of"), ([file], "expected RESULT PICTURE"),
                        ([folder / "none", picture], "No such file"), ([file, folder / "a.pdf"], "ends in .svg or .png")):
        done = subprocess.run([*plot, *given], capture_output=True, text=True, check=False)
        expect((done.returncode, text in done.stderr, done.stderr.count("\n")), (1, True, 1), f"refused: {text}")


def check_drawn():
    """By gnuplot itself, as it is read."""
    rows = [all_reduce_row(size=size, in_place=all_reduce_row()["out_of_place"], type=kind)
            for kind in ("float", "double") for size in (256, 4000, 64 << 20)]
    drawings = {"line": bandwidth_chart(result_of(*rows), rows, [])[1], "share": share_chart(result_of(*rows))[1],
                "one": line_chart("t", [Panel("y", (Series("one", ((256, 0.0),), 1),))]),
                "bar": bar_chart("title", "ms", [("hybrid_shard<2>", [Bar((("one", 2), ("two", 4)))])], limit=6)}
    if shutil.which("gnuplot") is None:
        print("skipped: pictures, without gnuplot")
        return
    for name, picture in draw(drawings).items():
        text = stamped(picture, drawings[name])
        expect(layout_problems(text), [], f"{name}: its texts can be read")
        axis = "ms" if name == "bar" else "size"
        expect([each for each, _ in boxes_of_texts(text) if each == axis][:1], [axis], f"{name}: its axis is named")
        expect([is_of(text, drawings[name]), is_of(text.replace("</svg>", " </svg>"), drawings[name]),
                is_of(text, Drawing(1, 1, ""))], [True, False, False], f"{name}: known as its drawing's, unchanged, and no other's")
    expect(draw({"png": drawings["bar"]}, "png")["png"][:8], b"\x89PNG\r\n\x1a\n", "a PNG")
    try:
        draw({"bad": Drawing(9, 9, "plot nothing here\n")})
        expect("drawn", "refused", "a script that fails")
    except NoGnuplot as error:
        expect("gnuplot failed" in str(error), True, "a script that fails says so")


check_axes()
check_texts()
check_bars()
check_lines()
check_looks()
check_predicted()
check_peers()
with tempfile.TemporaryDirectory() as name:
    check_plot(pathlib.Path(name))
check_drawn()
expectation.end()
