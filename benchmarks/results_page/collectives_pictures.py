# SPDX-License-Identifier: Apache-2.0
"""Pictures of collectives over the size: bus bandwidth and time, and the share of the copy."""
from collectives_evidence import PLACEMENTS
from line_chart import line_chart
from panel import Panel
from peer_times import peer_times
from series import Series
from text import size_text


def curves(rows):
    """{(verb, type, redop): rows}, of those with a bandwidth."""
    found = {}
    for row in rows:
        if any(row[placement] and row[placement]["busbw_gb_s"] for placement in PLACEMENTS):
            found.setdefault((row["verb"], row["type"], row["redop"]), []).append(row)
    return found


def own_series(rows, placement, colour):
    """Bandwidth, time, and the copy's bandwidth."""
    words = PLACEMENTS[placement]
    having = [(row["size"], row[placement]) for row in rows if row[placement] and row[placement]["busbw_gb_s"]]
    if having:
        yield "bandwidth", Series(words, tuple((x, y["busbw_gb_s"]) for x, y in having), colour)
        yield "bandwidth", Series(f"{words}: limit (copy)", tuple((x, y["copy"]["busbw_gb_s"]) for x, y in having),
                                  colour, dashed=True)
        yield "time", Series(words, tuple((x, y["time_us"]["median"]) for x, y in having), colour)


def peer_series(rows, times, name, colour):
    """Where a size was measured on both sides."""
    having = [(row, times[row["size"]]) for row in rows if row["size"] in times]
    if having:
        yield "bandwidth", Series(name, tuple((row["size"], row["size"] * row["bus_factor"] / time / 1e3)
                                              for row, time in having), colour)
        yield "time", Series(name, tuple((row["size"], time) for row, time in having), colour)


def who(result):
    """The engine and its ranks; for an axis of a mesh its groups, which all run at once."""
    ranks = f"{result['engine']}, {result['group_size']} ranks"
    if result["groups"] == 1:
        return ranks
    return f"{ranks} along {result['axis']} of {result['mesh']}, {result['groups']} groups at once"


def verb_picture(result, others, key, rows):
    verb, data_type, redop = key
    series = {"bandwidth": [], "time": []}
    for colour, placement in enumerate(PLACEMENTS):
        for panel, each in own_series(rows, placement, colour):
            series[panel].append(each)
    if result["groups"] == 1 and redop in (None, "sum"):
        for colour, (name, times) in enumerate(peer_times(others, result, verb, data_type).items(), len(PLACEMENTS)):
            for panel, each in peer_series(rows, times, name, colour):
                series[panel].append(each)
    title = f"{verb} on {who(result)}, {data_type}" + (f" {redop}" if redop else "")
    return title, line_chart(title, [
        Panel("bus bandwidth (GB/s)", tuple(series["bandwidth"]), False, "size", size_text),
        Panel("time of a call (us)", tuple(series["time"]), True, "size", size_text)])


def share_picture(result, found):
    """Of all verbs in their first type and operation."""
    series, verbs = [], []
    for (verb, _, _), rows in found.items():
        if verb in verbs:
            continue
        for placement, words in PLACEMENTS.items():
            points = tuple((row["size"], row[placement]["share_of_copy"]) for row in rows
                           if row[placement] and row[placement]["share_of_copy"])
            if points:
                series.append(Series(f"{verb}, {words}", points, len(verbs), dashed=placement == "in_place"))
        verbs.append(verb)
    title = f"share of the copy on {who(result)}"
    return title, line_chart(title, [Panel("time of the copy / time of the collective", tuple(series), False, "size",
                                           size_text, one=True)])


def collectives_pictures(result, others):
    """(file name, title, SVG)"""
    found = curves(result["rows"])
    if found:
        yield (f"{result.stem}_share_of_copy.svg", *share_picture(result, found))
    for key, rows in found.items():
        yield ("_".join([result.stem, *filter(None, key)]) + ".svg", *verb_picture(result, others, key, rows))
