# SPDX-License-Identifier: Apache-2.0
"""Collectives of peers, from results of benchmarks/run peers."""
from bad_result import BadResult

# Moves nothing: its time is none of a verb.
BARRIER = "std::barrier"
IN_PIECES = ("all_gather", "reduce_scatter")
FLOAT = 4


def whole_pieces(row):
    """The row's size as collectives say it: rounded down, so that each rank has as many elements."""
    unit = FLOAT * (row["ranks"] if row["verb"] in IN_PIECES else 1)
    return row["size"] // unit * unit


def timed(result):
    """The rows that have a peer's time of a verb: (name, verb, type, ranks, size, microseconds).
    @raise BadResult for rows without these"""
    try:
        return [(row["peer"]["name"], row["verb"], row["type"], row["ranks"], whole_pieces(row),
                 row["peer"]["time_us"]["median"]) for row in result["rows"]
                if row["part"] == "collectives" and row["peer"]["name"] != BARRIER]
    except (KeyError, TypeError) as error:
        raise BadResult(f"{result.name}: a row of collectives: expected a peer's time, verb, type, ranks and size, as "
                        f"docs/benchmarks.md says: {error!r}") from None


def peer_times(results, result, verb, data_type):
    """{peer: {size: microseconds}} of a verb over as many ranks as in `result`, measured on the same machine and
    in no quick run; of several files the last."""
    found = {}
    for other in results:
        if other.kind != "peers" or other.is_quick or not other.is_of_machine(result):
            continue
        for name, *key, size, time in timed(other):
            if key == [verb, data_type, result["group_size"]]:
                found.setdefault(name, {})[size] = time
    return found
