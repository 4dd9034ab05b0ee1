# SPDX-License-Identifier: Apache-2.0
"""The page's part for a result of benchmarks/run collectives."""
from collectives_evidence import PLACEMENTS
from collectives_pictures import collectives_pictures
from text import figure, percent, size_text, table

HEADS = (">size", "type", "redop", ">time (us)", ">busbw (GB/s)", ">of copy (%)", ">in place: time (us)",
         ">busbw (GB/s)", ">of copy (%)")


def cells(found):
    if found is None:
        return ("-", "-", "-")
    share = found["share_of_copy"]
    return (figure(found["time_us"]["median"]), figure(found["busbw_gb_s"]), "-" if share is None else percent(share))


def collectives_section(result, others):
    """(lines under a heading, pictures of that heading)"""
    pictures = list(collectives_pictures(result, others))
    yield None, [], [picture for picture in pictures if picture[0].endswith("_share_of_copy.svg")]
    for verb in dict.fromkeys(row["verb"] for row in result["rows"]):
        rows = [(size_text(row["size"]) if row["size"] else "-", row["type"] or "-", row["redop"] or "-",
                 *(text for placement in PLACEMENTS for text in cells(row[placement])))
                for row in result["rows"] if row["verb"] == verb]
        yield verb, table(HEADS, rows), [picture for picture in pictures
                                         if picture[0].startswith(f"{result.stem}_{verb}_")]
