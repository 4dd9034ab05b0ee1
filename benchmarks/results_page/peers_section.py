# SPDX-License-Identifier: Apache-2.0
"""The page's part for a result of benchmarks/run peers."""
import row as peer_row
from ratio_bars import ratio_bars
from text import cell, figure, table

RATIOS = ("times_faster", "times_the_cost")
HEADS = ("what", "ours", "peer", "figure", ">median", ">least", ">most", "target", "met")


def time_text(side):
    if "time_us" in side:
        return f"{figure(side['time_us']['median'])} us"
    return f"{side['instructions']:.0f} instructions" if "instructions" in side else "-"


def cells(made):
    value = made["value"]
    return (made["what"], f"{made['ours']['name']}, {time_text(made['ours'])}",
            f"{made['peer']['name']}, {time_text(made['peer'])}", made["figure"].replace("_", " "),
            figure(value["median"]), figure(value["min"]), figure(value["max"]),
            peer_row.target_text(made["target"]), peer_row.met_text(made))


def pictures_of(result, part, rows):
    """One for each figure that is a ratio and each number of ranks."""
    for name, ranks in dict.fromkeys((made["figure"], made.get("ranks")) for made in rows):
        if name in RATIOS:
            bars = [(f"{made['what']}: {made['ours']['name']} / {made['peer']['name']}", made["value"]["median"],
                     made["met"]) for made in rows if (made["figure"], made.get("ranks")) == (name, ranks)]
            title = f"{part}: {name.replace('_', ' ')}" + (f", {ranks} ranks" if ranks else "")
            yield (f"{result.stem}_{part}_{name}" + (f"_{ranks}_ranks" if ranks else "") + ".svg", title,
                   ratio_bars(title, bars))


def left_out(result):
    for title, member in (("Left out", "left_out"), ("Failed", "failed")):
        if result[member]:
            yield from (f"{title}:", "", *(f"- {cell(entry['part'])}, {cell(entry['what'])}: {cell(entry['why'])}"
                                           for entry in result[member]), "")


def versions(result):
    yield from ("Versions and flags of each side:", "")
    yield from (f"- {cell(name)}: {cell(text)}" for name, text in sorted(result["versions"].items()))
    for name, facts in sorted(result["sides"].items()):
        yield f"- {cell(name)}: " + ", ".join(f"{cell(key)} {cell(text)}" for key, text in sorted(facts.items()))


def peers_section(result, _others):
    for part in dict.fromkeys(made["part"] for made in result["rows"]):
        rows = [made for made in result["rows"] if made["part"] == part]
        yield part, table(HEADS, [cells(made) for made in rows]), list(pictures_of(result, part, rows))
    yield None, [*left_out(result), *versions(result)], []
