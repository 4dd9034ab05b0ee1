# SPDX-License-Identifier: Apache-2.0
"""Charts of a result of benchmarks/run collectives over the size: bus bandwidth and time, and the share of the copy."""
from chart import Panel, Series, line_chart

PLACEMENTS = {"out_of_place": "", "in_place": ", in place"}
REFERENCE = "dashed: the copy"


def who(result):
    """The engine and its ranks; for an axis of a mesh its groups, which all run at once."""
    ranks = f"{result['engine']}, {result['group_size']} ranks"
    if result["groups"] == 1:
        return ranks
    return f"{ranks} along {result['axis']} of {result['mesh']}, {result['groups']} groups at once"


def moving(rows, placement):
    """The rows that have a bandwidth in this placement, and their figures there."""
    return [(row, row[placement]) for row in rows if row[placement] and row[placement]["copy"]]


def name_of(row, rows):
    """Verb, and type and operation where there are several."""
    return " ".join([row["verb"], *(row[part] for part in ("type", "redop") if row[part] is not None
                                    and len({other[part] for other in rows if other[part] is not None}) > 1)])


def curves(rows, peers):
    """{name: ((size, bandwidth), (size, copy's bandwidth), (size, time) of each point)} in the order of the rows."""
    found = {}
    for row in rows:
        size, name = row["size"], name_of(row, rows)
        for placement, words in PLACEMENTS.items():
            for _, figure in moving([row], placement):
                found.setdefault(name + words, []).append(tuple((size, value) for value in (
                    figure["busbw_gb_s"], figure["copy"]["busbw_gb_s"], figure["time_us"]["median"])))
        for time in peers:
            if time.belongs_to(row):
                found.setdefault(f"{time.peer}: {name}", []).append(
                    ((size, size * row["bus_factor"] / time.time_us / 1e3), None, (size, time.time_us)))
    return found


def bandwidth_chart(result, rows, peers, title=None):
    """Bus bandwidth beside the copy's, and the time of a call."""
    bandwidth, time = [], []
    for look, (name, points) in enumerate(curves(rows, peers).items(), 1):
        bandwidths, copies, times = zip(*points)
        bandwidth.append(Series(name, bandwidths, look))
        if copies[0] is not None:
            bandwidth.append(Series(name, copies, look, dashed=True))
        time.append(Series(name, times, look))
    title = title or f"bus bandwidth and time on {who(result)}"
    return title, line_chart(title, [Panel("bus bandwidth (GB/s)", tuple(bandwidth), decades=True),
                                     Panel("time of a call (us)", tuple(time), decades=True)], REFERENCE)


def share_chart(result):
    """Of all verbs in their first type and operation; dashed in place."""
    firsts, series = {}, {False: [], True: []}
    for row in result["rows"]:
        firsts.setdefault(row["verb"], (row["type"], row["redop"]))
    for look, (verb, kind) in enumerate(firsts.items(), 1):
        rows = [row for row in result["rows"] if (row["verb"], (row["type"], row["redop"])) == (verb, kind)]
        for placement in PLACEMENTS:
            points = tuple((row["size"], figure["share_of_copy"]) for row, figure in moving(rows, placement))
            if points:
                series[placement == "in_place"].append(Series(verb, points, look))
    panels = [Panel(f"time of the copy / time of the verb, {words}", tuple(series[key]), one=True)
              for key, words in ((False, "out of place"), (True, "in place")) if series[key]]
    title = f"share of the copy on {who(result)}"
    return title, line_chart(title, panels) if panels else None
