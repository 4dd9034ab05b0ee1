// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>

#include "paced_ranks.hpp"

namespace paced_ranks {

/// Checks that `train(rank, policy)` gives `expected` on every rank of 1, 2, 3, 4 and 8, under each of the policies:
/// whenever each stream works on 2 and 3 ranks, and where the compute stream is late on the others. In slow builds on
/// 3 and 4.
template <class Values, class Policies, class Train>
void check_training(const Values& expected, const Policies& policies, const Train& train) {
    for (const std::size_t ranks : {2U, 3U, 1U, 4U, 8U}) {
        if (test_size::reduced() && ranks != 3 && ranks != 4) { continue; }
        for (const sk::DynamicPolicy& policy : policies) {
            if (ranks % policy.shard_group(ranks) != 0) { continue; }
            for (const auto paces : ranks == 2 || ranks == 3 ? paces_in_turn() : std::span(one_lazy).first(1)) {
                CAPTURE(ranks);
                CAPTURE(std::string(policy.name()));
                std::vector<Values> values(ranks);
                CHECK(run(sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>(ranks, 1, 1), paces, {},
                          [&](auto& rank, const auto&) { values[rank.rank()] = train(rank, policy); }) == "");
                for (const Values& of_rank : values) { CHECK(of_rank == expected); }
            }
        }
    }
}

}  // namespace paced_ranks
