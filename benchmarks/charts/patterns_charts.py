# SPDX-License-Identifier: Apache-2.0
"""Chart of patterns of somebody's own, from what shardkit::measure::pattern_json writes."""
from chart import Bar, bar_chart


def pattern_chart(result):
    """A call of each pattern: its computation and what of the communication is waited for, the communication alone, the copy."""
    def bars(row):
        whole, communication = (row[name]["median"] for name in ("time_us", "communication_us"))
        if row["computation_us"] is not None:
            computation = row["computation_us"]["median"]
            yield Bar((("computation", computation), ("exposed communication", max(0, whole - computation))))
        yield Bar((("communication alone", communication),))
        if row["copy"] is not None:
            yield Bar((("the copy", row["copy"]["time_us"]["median"]),))

    title = f"patterns on {result['engine']}, {result['ranks']} ranks"
    return title, bar_chart(title, "time of a call (us)", [(row["pattern"], tuple(bars(row))) for row in result["rows"]])
