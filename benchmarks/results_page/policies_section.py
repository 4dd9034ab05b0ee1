# SPDX-License-Identifier: Apache-2.0
"""The page's part for results of benchmarks/run policies, and what they say about targets."""
from policies_charts import follows, memory_chart, policy_label, predicted_chart, step_chart
from targets import Evidence
from text import cell, figure, mebibytes, percent, table

QUESTION = "Which policy takes which memory and time?"
HEADS = ("mesh", "policy", ">peak (MiB)", ">planned (MiB)", ">calls", ">moved (B)", ">theory (B)", ">planned (B)",
         ">step (us)", ">p99 (us)", ">exposed (%)", ">compute (us)", ">communication (us)", ">predicted (us)", ">error (%)",
         ">differs")
SCHEDULE_HEADS = ("mesh", "policy", "schedule", ">peak (MiB)", ">step (us)", ">of the step without", ">exposed, of communication",
                  ">hidden of ranks' waiting for each other", ">simulated (us)", ">error (%)")
BYTES_HEADS = ("mesh", "policy", "collective", ">calls", ">moved (B)", ">theory (B)", ">planned (B)", ">to other groups (B)",
               ">theory (B)", ">planned (B)")
# Steps that follow no schedule.
WITHOUT = ("none", "hand")


def evidence(result):
    for row in result["rows"]:
        yield Evidence("peak_bytes", abs(row["peak_bytes"] / row["planned_peak_bytes"] - 1),
                       f"{row['mesh']} {policy_label(row)}")
    for row, _ in scheduled(result):
        what = f"{row['mesh']} {policy_label(row)}, {row['schedule']}, engine {result['engine']}"
        if row["simulation_error"] is not None:
            yield Evidence("simulated_step", abs(row["simulation_error"]), what)
        free = result.get("work_elsewhere", False) or result["machine"]["processors"] > row["ranks"]
        spare = free and result["overlap"]
        if spare and row["communication_us"]["median"] < row["compute_us"]["median"] and follows(row) not in WITHOUT:
            yield Evidence("exposed_communication", row["exposed_share"], what)


def scheduled(result):
    """Rows of a result with schedules, each with that of the step without one."""
    plain = {(row["mesh"], policy_label(row)): row for row in result["rows"] if follows(row) == "none"}
    if len(plain) < len(result["rows"]):
        yield from ((row, plain.get((row["mesh"], policy_label(row)))) for row in result["rows"])


def waited(row):
    """Microseconds of a step for which ranks wait for each other: what neither computing nor communicating takes."""
    return row["step_us"]["median"] - row["compute_us"]["median"] - row["communication_us"]["median"]


def hidden(result, row, plain):
    """Of the waiting of the step without a schedule, where ranks are slower in turns."""
    if result["slow_percent"] == 0 or not result["slow_in_turns"] or plain is None or waited(plain) <= 0:
        return None
    return min(1, 1 - waited(row) / waited(plain))


def schedule_row(result, row, plain):
    error, less = row["simulation_error"], hidden(result, row, plain)
    return (row["mesh"], policy_label(row), row["schedule"], mebibytes(row["peak_bytes"]), figure(row["step_us"]["median"]),
            "-" if plain is None else f"{row['step_us']['median'] / plain['step_us']['median']:.2f}",
            f"{row['exposed_share']:.2f}", "-" if less is None else f"{less:.2f}", figure(row["simulated_step_us"]),
            "-" if error is None else f"{100 * error:+.0f}")


def measured_row(row):
    """What a step's collectives moved stands beside the closed form and the plan."""
    error = row["prediction_error"]
    moved = [sum(each[member] for each in row["collectives"]) for member in ("bytes", "theory_bytes", "planned_bytes")]
    return (row["mesh"], policy_label(row), mebibytes(row["peak_bytes"]), mebibytes(row["planned_peak_bytes"]),
            f"{row['calls']:.6g}", *(f"{size:.0f}" for size in moved), figure(row["step_us"]["median"]),
            figure(row["step_us"]["p99"]), percent(row["exposed"]), figure(row["compute_us"]["median"]),
            figure(row["communication_us"]["median"]), figure(row["predicted_communication_us"]),
            "-" if error is None else f"{100 * error:+.0f}", f"{row['difference']:.1e}")


def bytes_rows(result):
    """What each collective moves of which something goes to other shard groups."""
    rows = [row for row in result["rows"] if follows(row) == "none"]
    members = ("bytes", "theory_bytes", "planned_bytes", "across_bytes", "theory_across_bytes", "planned_across_bytes")
    return [(row["mesh"], policy_label(row), each["verb"], f"{each['calls']:.6g}", *(f"{each[member]:.0f}" for member in members))
            for row in rows for each in row["collectives"] if each["calls"] and each.get("across_bytes")]


def link_text(link):
    limit = "no limit" if link["gb_s"] is None else f"{link['gb_s']:.6g} GB/s"
    return f"{link['latency_us']:.6g} us, {limit}"


def link_lines(links):
    """The values of the links, once where all verbs have the same."""
    texts = {}
    for each in links["verbs"]:
        text = link_text(each["within_node"])
        if each["across_nodes"] != each["within_node"]:
            text = f"within a node {text}; across nodes {link_text(each['across_nodes'])}"
        texts.setdefault(text, []).append(each["verb"])
    yield f"Links: {cell(links['source'])}: " + "; ".join(
        text if len(texts) == 1 else f"{' and '.join(verbs)} {text}" for text, verbs in texts.items()) + "."


def result_lines(result):
    model, links, rows = result["model"], result["links"], result["rows"]
    moved = bytes_rows(result)
    timed = not (moved and result.is_quick)
    yield from (f"### {result.name}: {cell(model['description'])}", "",
                f"{model['numel']} elements in {len(model['groups'])} groups, {model['type']}.")
    if links is not None and timed:
        yield from link_lines(links)
    yield ""
    if moved:
        yield from ("Bytes that a rank moves in a step, and those of them that go to other shard groups: between hosts where each "
                    "group is on one." + ("" if timed else " Its times are no result, and are left out."), "",
                    *table(BYTES_HEADS, moved))
    if rows and timed:
        yield from table(HEADS, [measured_row(row) for row in rows if follows(row) == "none"])
        if with_schedules := [schedule_row(result, *pair) for pair in scheduled(result)]:
            yield from ("With schedules, in turns:", "", *table(SCHEDULE_HEADS, with_schedules))
            if result["slow_percent"] > 0 and not result["slow_in_turns"]:
                yield from (f"Rank 0 computes {result['slow_percent']:g} % longer all the time, and that is the computation of "
                            "these steps: whatever they follow, the others wait for it, and only what rank 0 itself waits "
                            "for communication can be hidden.", "")
    if result["predicted"] is not None:
        yield from ("Predicted, not measured, and drawn above: " + "; ".join(map(cell, result["predicted"]["assumptions"])) +
                    ".", "")


def section(results, _everything):
    pictures = []
    for name, chart, wanted in (("policies_step", step_chart, "rows"), ("policies_memory", memory_chart, "rows"),
                                ("policies_predicted", predicted_chart, "predicted")):
        first = next((result for result in results if result[wanted]), None)
        if first is not None:
            pictures.append((name, *chart(first)))
    return ["Where predictions are far off, and why: [method](benchmarks_policies.md#method-of-the-policies).", "",
            *(line for result in results for line in result_lines(result))], pictures
