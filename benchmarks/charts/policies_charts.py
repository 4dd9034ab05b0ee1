# SPDX-License-Identifier: Apache-2.0
"""Charts of a result of benchmarks/run policies: a step and its parts, memory, and predicted steps over ranks."""
from chart import Bar, Panel, Series, bar_chart, line_chart


def policy_label(row):
    """As it is written in C++."""
    return f"{row['policy']}<{row['shard_group']}>" if row["policy"] in ("hybrid_shard", "hybrid_optimizer", "secondary_shard") else row["policy"]


def follows(row):
    """What a step follows; in results without schedules, none."""
    return row.get("schedule", "none")


def labels(rows):
    """With the mesh where there are several, and with what a step follows."""
    several = len({row["mesh"] for row in rows}) > 1
    schedules = ["" if follows(row) == "none" else f" {follows(row)}" for row in rows]
    return [(f"{row['mesh']} " if several else "") + policy_label(row) + schedule for row, schedule in zip(rows, schedules)]


def of_model(result):
    return f"{result['model']['description']}, {result['model']['type']}"


def step_chart(result):
    def bars(row):
        compute, step = row["compute_us"]["median"], row["step_us"]["median"]
        yield Bar((("computation", compute / 1e3), ("exposed communication", max(0, step - compute) / 1e3)))
        yield Bar((("communication alone", row["communication_us"]["median"] / 1e3),))
        if row["predicted_communication_us"] is not None:
            yield Bar((("communication, predicted", row["predicted_communication_us"] / 1e3),))

    title = f"a step on {result['engine']}: {of_model(result)}"
    return title, bar_chart(title, "time (ms)", [(label, tuple(bars(row))) for label, row in
                                                 zip(labels(result["rows"]), result["rows"])])


def memory_chart(result):
    title = f"peak memory of a rank: {of_model(result)}"
    return title, bar_chart(title, "MiB", [
        (label, tuple(Bar(((name, row[member] / (1 << 20)),)) for name, member in
                      (("measured", "peak_bytes"), ("planned", "planned_peak_bytes"))))
        for label, row in zip(labels(result["rows"]), result["rows"])])


def predicted_chart(result):
    rows = sorted(result["predicted"]["rows"], key=lambda row: row["ranks"])
    names = {row["policy"]: policy_label(row) for row in rows}
    if len({policy_label(row) for row in rows}) > len(names):  # groups that grow with the mesh: one line, without them
        names = {policy: policy for policy in names}
    names = {policy: names[policy] for policy in dict.fromkeys(row["policy"] for row in result["predicted"]["rows"])}
    panels = []
    for member, words in (("step_no_overlap_us", "no overlap"), ("step_full_overlap_us", "perfect overlap")):
        series = [Series(name, tuple((row["ranks"], row[member] / 1e3) for row in rows if row["policy"] == policy), look,
                         width=2 * (len(names) + 1 - look)) for look, (policy, name) in enumerate(names.items(), 1)]
        panels.append(Panel(f"time (ms), {words}", tuple(series), "ranks"))
    title = f"PREDICTED step, not measured: {of_model(result)}"
    return title, line_chart(title, panels)
