# SPDX-License-Identifier: Apache-2.0
"""The page's part for a result of benchmarks/run peers."""
import row as peer_row
from grouped_bars import grouped_bars
from ratio_bars import ratio_bars
from text import cell, figure, table

# As includes.py measures.
NVCC_ROUNDS = 3
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


def collectives_pictures(result, rows):
    """For each number of ranks one of the threads engine and one of our engines on MPI, grouped by verb and size."""
    for ranks in dict.fromkeys(made["ranks"] for made in rows):
        for words, on_mpi in (("threads", False), ("mpi", True)):
            chosen = [made for made in rows if made["ranks"] == ranks and (" on " in made["ours"]["name"]) == on_mpi]
            if not chosen:
                continue
            title = f"collectives: times faster, {ranks} ranks, engine {words}"
            groups = {}
            for made in chosen:
                name = f"{made['ours']['name'].removeprefix('shardkit on ')} / raw calls" if on_mpi else \
                    made["peer"]["name"]
                groups.setdefault(made["what"].removesuffix(f", {ranks} ranks"), []).append(
                    (name, made["value"]["median"], made["met"]))
            yield f"{result.stem}_collectives_{words}_{ranks}_ranks.svg", title, grouped_bars(title, groups)


def pictures_of(result, part, rows):
    """One for each figure that is a ratio and each number of ranks."""
    if part == "collectives":
        yield from collectives_pictures(result, rows)
        return
    for name, ranks in dict.fromkeys((made["figure"], made.get("ranks")) for made in rows):
        if name in RATIOS:
            bars = [(f"{made['what']}: {made['ours']['name']} / {made['peer']['name']}", made["value"]["median"],
                     made["met"]) for made in rows if (made["figure"], made.get("ranks")) == (name, ranks)]
            title = f"{part}: {name.replace('_', ' ')}" + (f", {ranks} ranks" if ranks else "")
            yield (f"{result.stem}_{part}_{name}" + (f"_{ranks}_ranks" if ranks else "") + ".svg", title,
                   ratio_bars(title, bars))


def rounds_of(made, result):
    """Rows of earlier results do not say; nvcc had few rounds even then."""
    return made.get("rounds", min(result["rounds"], NVCC_ROUNDS) if made.get("compiler") == "nvcc" else
                    result["rounds"])


def few_rounds(result, rows):
    """A line for each number of rounds below that of the result. Instructions are counted once."""
    found = {}
    for made in rows:
        rounds = rounds_of(made, result)
        if rounds < result["rounds"] and "instructions" not in made["ours"]:
            found.setdefault(rounds, {})[made.get("compiler", made["what"])] = True
    for rounds, names in sorted(found.items()):
        yield from (f"In {rounds} round{'s' if rounds > 1 else ''}, not {result['rounds']}: "
                    f"{', '.join(map(cell, names))}.", "")


def left_out(result):
    for title, member in (("Left out", "left_out"), ("Failed", "failed")):
        if result[member]:
            yield from (f"{title}:", "", *(f"- {cell(entry['part'])}, {cell(entry['what'])}: {cell(entry['why'])}"
                                           for entry in result[member]), "")


def versions(result):
    # Earlier results do not say which library they are of, nor of which run the sides are.
    several = len({made["ranks"] for made in result["rows"] if "ranks" in made}) > 1
    of_last = " (of the run with the most ranks)" if several and "commit" not in result["versions"] else ""
    yield from (f"Versions and flags of each side{of_last}:", "")
    yield from (f"- {cell(name)}: {cell(text)}" for name, text in sorted(result["versions"].items()))
    for name, facts in sorted(result["sides"].items()):
        yield f"- {cell(name)}: " + ", ".join(f"{cell(key)} {cell(text)}" for key, text in sorted(facts.items()))


def peers_section(result, _others):
    for part in dict.fromkeys(made["part"] for made in result["rows"]):
        rows = [made for made in result["rows"] if made["part"] == part]
        yield part, [*few_rounds(result, rows), *table(HEADS, [cells(made) for made in rows])], list(pictures_of(result, part, rows))
    yield None, [*left_out(result), *versions(result)], []
