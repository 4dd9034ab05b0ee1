# SPDX-License-Identifier: Apache-2.0
"""The page's part for results of benchmarks/run checkpoints, and what they say about targets."""
from chart import Bar, bar_chart
from figures import rough_size
from targets import Evidence
from text import figure, percent, table

QUESTION = "How fast are checkpoints, beside plain reads and writes?"
OF_LIMIT = {"save": "checkpoint_save", "save, page cache": "checkpoint_save", "load, warm": "checkpoint_load",
            "load, cold": "checkpoint_load"}
# Smaller ones say more of opening files than of writing them.
LEAST_STATE = 1_400_000_000


def evidence(result):
    if result["state_bytes"] < LEAST_STATE:
        return
    for row in result["rows"]:
        if row["what"] in OF_LIMIT:
            yield Evidence(OF_LIMIT[row["what"]], row["share_of_limit"], row["what"])
        elif row["what"] == "begin_save":
            yield Evidence("checkpoint_stall", row["time_us"]["median"] / 1000, row["what"])
    yield Evidence("checkpoint_digest", result["digest_share"], "plain writes with digests")


def section(results, _everything):
    lines = ["Times of all ranks together, and the limit's over them: plain calls on as many bytes, by as many threads.", ""]
    for result in results:
        size = rough_size(result["state_bytes"])
        lines += [f"### {result.name}: {result['ranks']} ranks, {result['policy']}, a state of {size}", "", *table(
            ("what", ">ms", ">least", ">limit, ms", ">of limit, %", "limit"),
            [(row["what"], figure(row["time_us"]["median"] / 1000), figure(row["time_us"]["min"] / 1000),
              figure(row["limit_us"] and row["limit_us"]["median"] / 1000),
              "-" if row["share_of_limit"] is None else percent(row["share_of_limit"]), row["limit_is"] or "-")
             for row in result["rows"]]),
            f"Written {rough_size(result['bytes_written'])}, read {rough_size(result['bytes_read'])}; a rank made "
            f"{result['collectives_save']} collectives to save and {result['collectives_load']} to load; the process took "
            f"{rough_size(result['extra_memory_save'])} and {rough_size(result['extra_memory_load'])} besides. Digests "
            f"lengthen plain writes into the page cache by {percent(result['digest_share'])} %.", ""]
    first = results[0]
    bars = [(row["what"], [Bar((("share", row["share_of_limit"]),))])
            for row in first["rows"] if row["share_of_limit"] is not None]
    title = f"checkpoints of {rough_size(first['state_bytes'])} on {first['ranks']} ranks: speed over the limit's"
    return lines, [("checkpoints_share_of_limit", title, bar_chart(title, "the line is the limit", bars, limit=1.0))]
