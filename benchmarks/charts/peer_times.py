# SPDX-License-Identifier: Apache-2.0
"""Collectives of peers, from results of benchmarks/run peers: lines in charts of the library's."""
import dataclasses
import json
import pathlib

# Moves nothing: its time is none of a verb.
BARRIER = "std::barrier"
IN_PIECES = ("all_gather", "reduce_scatter", "all_to_all")
VERBS = ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "all_to_all", "send_receive")
BYTES = {"double": 8, "float": 4, "half": 2, "bfloat16": 2, "int64": 8, "int32": 4, "uint8": 1}


class BadPeers(Exception):
    """A file of peers that cannot be drawn; the text says what was expected."""


@dataclasses.dataclass(frozen=True)
class PeerTime:
    """What a peer took for a collective: a sum where it reduces, out of place unless it has no such form. `size`: as a
    row of collectives has it, rounded down to whole pieces."""
    peer: str
    verb: str
    type: str
    ranks: int
    size: int
    time_us: float

    def belongs_to(self, row):
        """Whether both are the same collective of the same size."""
        same = (self.verb, self.type, self.size) == (row["verb"], row["type"], row["size"])
        return same and row["redop"] in (None, "sum")


def parse(row):
    """@raise ValueError, KeyError or TypeError for a row without a peer's time, verb, type, ranks and size"""
    name, verb, data_type = row["peer"]["name"], row["verb"], row["type"]
    if not name or "\n" in name or "\r" in name:
        raise ValueError("a peer's name that is not one line")
    for what, given, known in (("verb", verb, VERBS), ("type", data_type, BYTES)):
        if given not in known:
            raise ValueError(f"{what} '{given}': expected one of {', '.join(known)}")
    piece = BYTES[data_type] * (row["ranks"] if verb in IN_PIECES else 1)
    time = row["peer"]["time_us"]["median"]
    if not time > 0:
        raise ValueError("a time that is not above 0")
    return PeerTime(name, verb, data_type, row["ranks"], row["size"] // piece * piece, time)


def peer_times(rows):
    """Of all rows that are a peer's collective and move data; a peer that stands in several was measured once.
    @raise ValueError, KeyError or TypeError"""
    times = {}
    for row in rows:
        name = row["peer"]["name"]
        if row["part"] == "collectives" and row["verb"] != "barrier" and name != BARRIER:
            time = parse(row)
            times.setdefault(dataclasses.replace(time, time_us=0), time)
    return list(times.values())


def read_peer_times(file, result):
    """Those in a file that were measured as rows of a result of collectives were, or are to be.
    @raise BadPeers"""
    if result["groups"] > 1:
        raise BadPeers("one group: an --axis with all ranks of --mesh")
    try:
        text = pathlib.Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise BadPeers("a file that can be read") from None
    try:
        found = json.loads(text)
        if found["benchmark"] != "peers" or found["format"] != 1:
            raise ValueError("another benchmark or format")
        times = peer_times(found["rows"])
    except (ValueError, KeyError, TypeError) as error:
        why = f"no member {error}" if isinstance(error, KeyError) else error
        raise BadPeers(f"what benchmarks/run peers collectives --json writes ({why})") from None
    ranks = result["group_size"]
    times = [time for time in times if time.ranks == ranks and any(time.belongs_to(row) for row in result["rows"])]
    if not times:
        raise BadPeers(f"a verb, size and type that is measured, over {ranks} ranks")
    return times
