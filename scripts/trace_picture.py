#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""trace_picture.py TRACE.json PICTURE.svg [TITLE]: draws a step as a timeline, a track for each rank and lane.

TRACE.json is what train_gpt --trace or shardkit::schedule::trace writes: of a measured step or of a simulated one.
Colours are of groups; dark pieces communicate, pale ones compute, hatched ones wait for communication.
"""
import json
import os
import re
import sys
from xml.sax.saxutils import escape

# Okabe and Ito, Color Universal Design: colours that colour-blind people tell apart
COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442", "#000000"]
INK, GREY, SHADE = "#1f2937", "#6b7280", "#f3f4f6"
LEFT, WIDTH, TOP, HEIGHT, ROW = 132, 760, 44, 22, 28


def operation(name):
    """(group, whether the rank waits) of a slice: 'wait at use of 'blocks.1', microbatch 0'."""
    waits = name.startswith("wait at ")
    match = re.match(r"(\w+)(?: of '(.*?)')?", name.removeprefix("wait at "))
    # An optimizer's step is one call for all groups.
    return "" if match[1] == "update" else match[2] or "", waits


def read(path):
    """Tracks by (rank, lane), each with its slices as (begin, end, name) in seconds, and their names."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    lanes, ranks, tracks = {}, {}, {}
    for event in events:
        if event["ph"] == "M":
            of = lanes if event["name"] == "thread_name" else ranks
            of[event["pid"], event.get("tid")] = event["args"]["name"]
        else:
            begin = event["ts"] * 1e-6
            tracks.setdefault((event["pid"], event["tid"]), []).append((begin, begin + event["dur"] * 1e-6, event["name"]))
    return {(ranks.get((pid, None), ""), lanes[pid, tid]): tracks[pid, tid] for pid, tid in sorted(tracks)}


def draw(tracks, title):
    slices = [each for track in tracks.values() for each in track]
    first, last = min(s[0] for s in slices), max(s[1] for s in slices)
    groups = list(dict.fromkeys(g for g in (operation(s[2])[0] for s in sorted(slices)) if g))
    unit = (WIDTH - LEFT - 16) / (last - first)
    bottom = TOP + ROW * len(tracks)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 62}" font-family="sans-serif">',
           f"<title>{escape(title)}</title>", f'<rect width="{WIDTH}" height="{bottom + 62}" fill="#ffffff"/>',
           '<defs><pattern id="waits" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
           f'<line x1="0" y1="0" x2="0" y2="5" stroke="{GREY}" stroke-width="1.5"/></pattern></defs>']

    def text(x, y, words, size=11, anchor="start", weight="normal", colour=INK):
        out.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" '
                   f'fill="{colour}">{escape(words)}</text>')

    def piece(x, y, width, group, waits, computes):
        if waits:
            fill = 'fill="url(#waits)"'
        else:
            colour = COLOURS[groups.index(group) % len(COLOURS)] if group else GREY
            fill = f'fill="{colour}" fill-opacity="{0.35 if computes else 0.9}"'
        out.append(f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{HEIGHT}" {fill}/>')

    text(16, 24, title, 13, weight="bold")
    for number, ((rank, lane), track) in enumerate(tracks.items()):
        y = TOP + ROW * number
        text(16, y + 15, f"{rank}  {lane}".strip())
        out.append(f'<rect x="{LEFT}" y="{y}" width="{WIDTH - LEFT - 16}" height="{HEIGHT}" fill="{SHADE}"/>')
        for begin, end, name in track:
            group, waits = operation(name)
            out.append(f"<g><title>{escape(name)}, {(end - begin) * 1e3:.3f} ms</title>")
            piece(LEFT + unit * (begin - first), y, unit * (end - begin), group, waits, lane == "compute")
            out.append("</g>")
    # At most seven, a round number of seconds apart.
    apart = next(n * 10.0**e for e in range(-9, 9) for n in (1, 2, 5) if n * 10.0**e * 7 > last - first)
    for tick in range(int((last - first) / apart + 1e-6) + 1):
        text(LEFT + unit * apart * tick, bottom + 8, f"{apart * tick * 1e3:g} ms", 10, "middle", colour=GREY)
    x = 16.0
    for group in groups[:len(COLOURS)]:
        piece(x, bottom + 18, 12, group, False, False)
        text(x + 17, bottom + 33, group)
        x += 30 + 6.2 * len(group)
    text(16, bottom + 56, "Dark: communicates, or waits there for other ranks. Pale: the rank computes. Hatched: it waits "
                          "for communication. Grey: norm and update.", 10)
    return "\n".join(out + ["</svg>"]) + "\n"


def refuse(what):
    print(f"trace_picture: error: {what}", file=sys.stderr)
    return 2


def main():
    if len(sys.argv) not in (3, 4) or "--help" in sys.argv:
        print(__doc__)
        return 0 if "--help" in sys.argv else 2
    trace, picture, title = sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) == 4 else "A step"
    if os.path.realpath(trace) == os.path.realpath(picture):
        return refuse(f"{picture}: expected another file than the trace")
    try:
        tracks = read(trace)
        drawn = draw(tracks, title) if tracks else None
    except OSError as error:
        return refuse(f"{trace}: {error.strerror}")
    except (ValueError, KeyError, TypeError, AttributeError):
        return refuse(f"{trace}: expected a trace, as train_gpt --trace writes it")
    if drawn is None:
        return refuse(f"{trace}: has no slice, expected a trace of a step")
    try:
        with open(picture, "w", encoding="utf-8") as file:
            file.write(drawn)
    except OSError as error:
        return refuse(f"{picture}: {error.strerror}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
