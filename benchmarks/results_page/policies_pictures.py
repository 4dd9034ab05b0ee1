# SPDX-License-Identifier: Apache-2.0
"""Pictures of policies: a step's time and what it is made of, memory, and predicted steps over ranks."""
from line_chart import line_chart
from panel import Panel
from policy_label import policy_label
from series import Series
from stacked_bars import stacked_bars


def labels(rows):
    """With the mesh where there are several."""
    several = len({row["mesh"] for row in rows}) > 1
    return [f"{row['mesh']} {policy_label(row)}" if several else policy_label(row) for row in rows]


def step_picture(result):
    rows = result["rows"]
    title = f"a step on {result['engine']}: computation and exposed communication; below it, communication alone"
    entries = [(label, [[("computation", row["compute_us"]["median"] / 1e3),
                         ("exposed communication", max(0, row["step_us"]["median"] - row["compute_us"]["median"])
                          / 1e3)],
                        [("communication alone", row["communication_us"]["median"] / 1e3)],
                        *([[("communication, predicted", row["predicted_communication_us"] / 1e3)]]
                          if row["predicted_communication_us"] is not None else [])])
               for label, row in zip(labels(rows), rows)]
    return title, stacked_bars(title, "time (ms)", entries)


def memory_picture(result):
    rows = result["rows"]
    title = "peak memory of a rank, and below it what was planned"
    entries = [(label, [[("measured", row["peak_bytes"] / (1 << 20))],
                        [("planned", row["planned_peak_bytes"] / (1 << 20))]])
               for label, row in zip(labels(rows), rows)]
    return title, stacked_bars(title, "memory (MiB)", entries)


def predicted_picture(result):
    """The least and the most time of each kind of policy over all ranks, in a panel each. Policies that take as long
    lie on each other: the first is the widest line."""
    series = {False: [], True: []}
    rows = result["predicted"]["rows"]
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    for colour, policy in enumerate(policies):
        having = sorted((row for row in rows if row["policy"] == policy), key=lambda row: row["ranks"])
        for member, words, dashed in (("step_no_overlap_us", "no overlap", False),
                                      ("step_full_overlap_us", "full overlap", True)):
            series[dashed].append(Series(f"{policy}, {words}", tuple((row["ranks"], row[member] / 1e3) for row in having),
                                 colour, dashed, 2 + 3 * (len(policies) - 1 - colour)))
    title = "predicted step, not measured; lines that coincide lie on wider ones"
    return title, line_chart(title, [Panel(f"time (ms), {words}", tuple(series[dashed]), True, "ranks", "{:.0f}".format)
                                     for words, dashed in (("no overlap", False), ("full overlap", True))])
