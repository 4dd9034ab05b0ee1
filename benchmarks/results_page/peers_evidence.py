# SPDX-License-Identifier: Apache-2.0
"""What a comparison with peers says about targets: its rows carry them."""
from bad_result import BadResult
from evidence import Evidence
from peer_times import BARRIER
from row import target_text
from targets import BY_ID


def of_collectives(row):
    if row["peer"]["name"] == BARRIER:
        return "more_ranks_than_processors"
    return "small_all_reduce_openmpi" if row["size"] == 256 else f"{row['verb']}_openmpi"


def of_adamw(row):
    return "adamw_by_hand" if row["peer"]["name"] == "hand-written AVX2" else "adamw_pytorch"


def of_overhead(row):
    return "verb_instructions" if row["figure"] == "instructions_per_verb" else "verb_nanoseconds"


def of_includes(row):
    which = "umbrella" if row["ours"]["name"] == "shardkit.hpp" else "light"
    return f"includes_{which}" + ("_nvcc" if row["compiler"] == "nvcc" else "")


TARGET_OF = {"collectives": of_collectives, "adamw": of_adamw, "overhead": of_overhead,
             "includes": of_includes, "training": lambda row: "training_fsdp2"}


def peers_evidence(result):
    """@raise BadResult for a row with a target that the project does not have"""
    for row in result["rows"]:
        if row["target"] is None:
            continue
        target = BY_ID.get(TARGET_OF[row["part"]](row))
        if target is None or target.bound != row["target"]:
            raise BadResult(f"{result.name}: '{row['what']}' against {row['peer']['name']} has the target "
                            f"{target_text(row['target'])}: expected "
                            + ("none" if target is None else f"{target_text(target.bound)}, as {target.id} says"))
        yield Evidence(target.id, row["value"]["median"], f"{row['what']}, against {row['peer']['name']}")
