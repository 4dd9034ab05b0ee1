# SPDX-License-Identifier: Apache-2.0
"""A policy as it is written in C++."""


def policy_label(row):
    return f"hybrid_shard<{row['shard_group']}>" if row["policy"] == "hybrid_shard" else row["policy"]
