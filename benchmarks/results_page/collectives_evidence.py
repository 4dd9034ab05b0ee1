# SPDX-License-Identifier: Apache-2.0
"""What collectives say about targets: sums of fp32 between threads, one on each processor."""
from evidence import Evidence
from targets import BY_ID
from text import size_text

SIZES = {"64MiB": 64 << 20, "1MiB": 1 << 20}
PLACEMENTS = {"out_of_place": "out of place", "in_place": "in place"}


def is_size(row, size, ranks):
    """The program rounds down to whole pieces."""
    return 0 <= size - row["size"] < 4 * ranks


def collectives_evidence(result):
    ranks = result["group_size"]
    if result["engine"] != "threads" or result["groups"] != 1 or ranks != result["machine"]["processors"]:
        return
    for row in result["rows"]:
        if row["type"] != "float" or row["redop"] not in (None, "sum"):
            continue
        for name, size in SIZES.items():
            target = f"{row['verb']}_{name}_of_copy"
            if target not in BY_ID or not is_size(row, size, ranks):
                continue
            for placement, words in PLACEMENTS.items():
                if row[placement] is not None and row[placement]["share_of_copy"] is not None:
                    yield Evidence(target, row[placement]["share_of_copy"],
                                   f"{row['verb']} {size_text(row['size'])}, {words}, {ranks} ranks")
