# SPDX-License-Identifier: Apache-2.0
"""The page's part for results of benchmarks/run collectives, and what they say about targets: sums of fp32 between
threads or processes, one on each processor."""
from collectives_charts import PLACEMENTS, bandwidth_chart, share_chart, who
from figures import rough_size, size_text
from peer_times import peer_times
from result import BadResult
from targets import TARGETS, Evidence, ShareOfCopy
from text import figure, percent, table

QUESTION = "How fast are collectives, and how near to a copy?"
SHOWN = ("256 B", "4 KiB", "64 KiB", "1 MiB", "16 MiB", "64 MiB")
DRAWN = ("all_gather", "reduce_scatter", "all_reduce")
WORDS = {"out_of_place": "out of place", "in_place": "in place"}


def evidence(result):
    for target in TARGETS:
        if not isinstance(target, ShareOfCopy):
            continue
        for row in result["rows"]:
            if not target.speaks_of(result, row):
                continue
            for placement, words in WORDS.items():
                if target.crowded and placement != "out_of_place":
                    continue
                if row[placement] is not None and row[placement]["share_of_copy"] is not None:
                    kind = "" if row["type"] == "float" else f" of {row['type']}"
                    yield Evidence(target.id, row[placement]["share_of_copy"],
                                   f"{row['verb']}{kind} {size_text(row['size'])}, {words}, {result['group_size']} ranks")


def times_of_peers(results, result):
    """Of peers that were measured on the same machine over as many ranks, in no quick run; of several files the last.
    @raise BadResult for rows without time, verb, type, ranks and size"""
    found = {}
    for other in results:
        if other.kind != "peers":
            continue
        try:
            times = peer_times(other["rows"])
        except (ValueError, KeyError, TypeError) as error:
            raise BadResult(f"{other.name}: a row of collectives: expected a peer's time, verb, type, ranks and size, "
                            f"as docs/benchmarks.md says: {error!r}") from None
        if not other.is_quick and other.is_of_machine(result) and result["groups"] == 1:
            found.update({(time.peer, time.verb, time.type, time.size): time for time in times
                          if time.ranks == result["group_size"]})
    return list(found.values())


def cells(figures):
    if figures is None:
        return "-"
    share = figures["share_of_copy"]
    return f"{figure(figures['time_us']['median'])} us" + ("" if share is None else f", {percent(share)} %")


def verb_rows(result, columns):
    """A row for each verb, type, operation and placement."""
    found = {}
    for row in result["rows"]:
        for placement, words in WORDS.items():
            if row[placement] is not None:
                key = (row["verb"], " ".join(filter(None, (row["type"], row["redop"]))) or "-",
                       words if row["size"] else "-")
                found.setdefault(key, {})[rough_size(row["size"])] = cells(row[placement])
    return [(*key, *(by_size.get(name, "-") for name in columns), by_size.get("0 B", "-"))
            for key, by_size in found.items()]


def pictures(result, results):
    """(file name, title, drawing) of the first result."""
    title, drawing = share_chart(result)
    if drawing is not None:
        yield ("collectives_share_of_copy", title, drawing)
    times = times_of_peers(results, result)
    for verb in DRAWN:
        rows = [row for row in result["rows"] if row["verb"] == verb
                and any(row[each] and row[each]["copy"] for each in PLACEMENTS)]
        rows = [row for row in rows if (row["type"], row["redop"]) == (rows[0]["type"], rows[0]["redop"])]
        if rows:
            title, drawing = bandwidth_chart(result, rows, times, f"{verb} of {rows[0]['type']} on {who(result)}")
            yield (f"collectives_{verb}", title, drawing)


def section(results, everything):
    lines = ["Time of a call, and the share of the copy that this is: 100 % is as fast as a plain copy of what has to "
             "be read and written. Of several results of the same ranks and types the newest is shown.", ""]
    newest = {}
    for result in sorted(results, key=lambda result: (not result.is_quick, result["date"])):
        newest[who(result), tuple(sorted({row["type"] or "" for row in result["rows"]}))] = result
    for result in [result for result in results if result in newest.values()]:
        sizes = list(dict.fromkeys(rough_size(row["size"]) for row in result["rows"] if row["size"]))
        columns = [name for name in sizes if name in SHOWN] or sizes[-1:]
        lines += [f"### {result.name}: {who(result)}", "", *table(
            ("verb", "type", "placement", *(f">{name}" for name in columns), ">no size"), verb_rows(result, columns))]
    return lines, list(pictures(results[0], everything))
