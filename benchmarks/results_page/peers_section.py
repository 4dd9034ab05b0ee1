# SPDX-License-Identifier: Apache-2.0
"""The page's part for results of benchmarks/run peers, and what they say about targets: rows carry them."""
import overhead
from chart import Bar, bar_chart
from figures import all_rounded
from peer_times import BARRIER
from result import BadResult
from row import target_text
from targets import BY_ID, Evidence
from text import cell, figure, table

QUESTION = "How does the library compare with its peers?"
# As includes.py measures.
NVCC_ROUNDS = 3
COMPILED = ", compiled"


def of_collectives(row):
    if row["peer"]["name"] == BARRIER:
        return "more_ranks_than_processors"
    if row["size"] != 256:
        return f"{row['verb']}_openmpi"
    return ("mpi_" if row["ours"]["name"] == "shardkit on openmpi" else "") + "small_all_reduce_openmpi"


def of_adamw(row):
    return "adamw_by_hand" if row["peer"]["name"] == "hand-written AVX2" else "adamw_pytorch"


def of_includes(row):
    if row["peer"]["name"] == "trainer by hand":
        return "trainer_compile_time"
    which = "umbrella" if row["ours"]["name"] == "shardkit.hpp" else "light"
    return f"includes_{which}" + ("_nvcc" if row["compiler"] == "nvcc" else "")


def of_training(row):
    return "training_products" if row["figure"] == "share" else "training_fsdp2"


TARGET_OF = {"collectives": of_collectives, "adamw": of_adamw, "overhead": lambda row: overhead.TARGETS[row["figure"]],
             "includes": of_includes, "products": lambda row: "products_pytorch", "training": of_training,
             "checkpoints": lambda row: f"checkpoint_{row['verb']}_dcp"}


def evidence(result):
    """@raise BadResult for a row with a target that the project does not have"""
    for row in result["rows"]:
        if row["target"] is None:
            continue
        target = BY_ID.get(TARGET_OF[row["part"]](row))
        if target is None or all_rounded(target.bound) != all_rounded(row["target"]):
            raise BadResult(f"{result.name}: '{row['what']}' against {row['peer']['name']} has the target "
                            f"{target_text(row['target'])}: expected "
                            + ("none" if target is None else f"{target_text(target.bound)}, as {target.id} says"))
        yield Evidence(target.id, row["value"]["median"], f"{row['what']}, against {row['peer']['name']}")


def place(row):
    """Line and column of a row in its part's table."""
    ours, peer = row["ours"]["name"], row["peer"]["name"]
    if row["part"] == "collectives":
        return row["what"], f"{ours.removeprefix('shardkit ')} / {peer}" if " on " in ours else peer
    if row["part"] == "training":
        return f"{row['what']} / {peer.removesuffix(COMPILED)}", "compiled" if peer.endswith(COMPILED) else "as it is"
    if row["part"] == "overhead":
        return row["what"], f"{row['engine']}, {row['figure'].split('_', maxsplit=1)[0]}"
    if row["part"] == "includes":
        return f"{ours} / {peer}", row["compiler"] + (", instructions" if "instructions" in row["ours"] else "")
    return row["what"], peer


def cell_of(row):
    value = row["value"]
    text = f"{figure(value['median'])} ({figure(value['min'])}-{figure(value['max'])})"
    if row["met"] is None:
        return text
    return f"{text} {target_text(row['target'])} {'met' if row['met'] else '**missed**'}"


def time_text(side):
    if "time_us" in side:
        return f"{figure(side['time_us']['median'])} us"
    return f"{side['instructions']:.0f} instructions" if "instructions" in side else "-"


def counted_alone(row):
    """A header whose instructions alone were counted, and no more than the target says."""
    return row["part"] == "includes" and "instructions" in row["ours"] and row["met"]


def part_table(rows):
    lines, columns = {}, {}
    timed = {place(row)[0] for row in rows if not counted_alone(row)}
    counted = [row for row in rows if counted_alone(row) and place(row)[0] not in timed]
    if len(counted) > 1:
        rows = [row for row in rows if row not in counted]
        values = sorted(row["value"]["median"] for row in counted)
        yield from (f"Of {len(counted)} other headers instructions alone were counted: {figure(values[0])} to {figure(values[-1])} "
                    f"times those of {cell(counted[0]['peer']['name'])}, all within the aim.", "")
    for row in rows:
        line, column = place(row)
        columns[column] = True
        lines.setdefault(line, {"": time_text(row["ours"])})[column] = cell_of(row)
    yield from table(("what", ">ours", *(f">{column}" for column in columns)),
                     [(line, found[""], *(found.get(column, "-") for column in columns)) for line, found in lines.items()])


def rounds_of(row, result):
    """Rows of earlier results do not say; nvcc had few rounds even then."""
    return row.get("rounds", min(result["rounds"], NVCC_ROUNDS) if row.get("compiler") == "nvcc" else result["rounds"])


def few_rounds(result, rows):
    """A line for each number of rounds below that of the result. Instructions are counted once."""
    found = {}
    for row in rows:
        rounds = rounds_of(row, result)
        if rounds < result["rounds"] and "instructions" not in row["ours"]:
            found.setdefault(rounds, {})[row.get("compiler", row["what"])] = True
    for rounds, names in sorted(found.items()):
        yield from (f"In {rounds} round{'s' if rounds > 1 else ''}, not {result['rounds']}: "
                    f"{', '.join(map(cell, names))}.", "")


def parts_of(result):
    """Its rows by their part, and what each part compares."""
    for part in dict.fromkeys(row["part"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["part"] == part]
        yield part, rows, {place(row) for row in rows}


def is_repeated(result, part, compared, results):
    """Whether another result compares all of this and more, or the same at a later time."""
    for other in results:
        if other is not result and other.is_quick <= result.is_quick:
            whole = {name: theirs for name, _, theirs in parts_of(other)}.get(part, set())
            if compared < whole or (compared == whole and (other["date"], other.name) > (result["date"], result.name)):
                return True
    return False


def result_lines(result, results):
    for part, rows, compared in parts_of(result):
        if is_repeated(result, part, compared, results):
            continue
        figures = dict.fromkeys(row["figure"].replace("_", " ") for row in rows)
        yield from (f"### {part}, {result.name}: {', '.join(figures)}", "", *few_rounds(result, rows),
                    *part_table(rows))
    for title, member in (("Left out", "left_out"), ("Failed", "failed")):
        if result[member]:
            yield from (f"{title}:", "", *(f"- {cell(entry['part'])}, {cell(entry['what'])}: {cell(entry['why'])}"
                                           for entry in result[member]), "")


def chart_of(title, rows):
    """Bars as the table has lines and columns."""
    groups = {}
    for row in rows:
        line, column = place(row)
        groups.setdefault(line, []).append(Bar(((column, row["value"]["median"]),), row["met"] is False))
    return title, bar_chart(title, "times as fast, logarithmic: bars begin at 1", list(groups.items()), ratio=True)


def pictures(results):
    """Of the threads engine with the fewest ranks, of training and of checkpoints; of the first result that has them."""
    titles = {"training": "a step of train_gpt", "checkpoints": "files of a state"}
    for part, chosen in (("collectives", lambda row: " on " not in row["ours"]["name"]),
                         ("training", lambda row: True), ("checkpoints", lambda row: True)):
        rows = next(filter(None, ([row for row in result["rows"] if row["part"] == part and chosen(row)]
                                  for result in results)), [])
        if part == "collectives":
            rows = [row for row in rows if row["ranks"] == min(each["ranks"] for each in rows)]
        if rows:
            what = titles.get(part) or f"{rows[0]['ranks']} ranks on threads"
            yield (f"peers_{part}", *chart_of(f"{part}, {what}: times faster than", rows))


def section(results, _everything):
    lines = ["Median over the rounds, in brackets the least and the largest; \"ours\" is the library's own cost beside "
             "the first peer. Of several results that compare the same the largest is shown, and of these the newest. The "
             "`sides` of a file are the versions and flags of each side.", ""]
    for result in results:
        lines += result_lines(result, results)
    return lines, list(pictures(results))
