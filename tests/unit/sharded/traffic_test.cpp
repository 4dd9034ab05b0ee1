// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include <doctest/doctest.h>

#include <shardkit/policy/policies.hpp>

#include "unit/sharded/custom_policies.hpp"
#include "unit/sharded/instantiations.hpp"
#include "unit/sharded/oracle_checks.hpp"

namespace sk = shardkit;

namespace traffic_test {

namespace {

/// Verb and axes -> calls of one rank, bytes over all ranks.
struct Counted {
    std::uint64_t calls = 0;
    std::uint64_t bytes = 0;
    bool operator==(const Counted&) const = default;
};
using Table = std::map<std::pair<std::string, std::string>, Counted>;

doctest::String toString(const Table& table) {
    std::string text;
    for (const auto& [key, value] : table) {
        text += key.first + " over " + key.second + ": " + std::to_string(value.calls) + " calls, " +
                std::to_string(value.bytes) + " bytes\n";
    }
    return text.c_str();
}

template <class Precision, class Policy>
Table measured(toy::Extents e, Policy policy, std::size_t microbatches) {
    const auto ranks = toy::train<Precision>(toy::Mesh(e.dp, e.tp, e.cp), policy,
                                             {.steps = 3, .samples = 24, .microbatches = microbatches, .clip = 1});
    Table table;
    for (const auto& rank : ranks) {
        for (const auto& entry : rank.traffic) {
            Counted& counted = table[{std::string(sk::name(entry.verb)), entry.axes}];
            counted.calls = entry.calls;
            counted.bytes += entry.moved.value;
        }
    }
    // The same calls on every rank.
    for (const auto& rank : ranks) {
        CHECK(rank.traffic.size() == table.size());
        for (const auto& entry : rank.traffic) {
            CHECK(entry.calls == table[{std::string(sk::name(entry.verb)), entry.axes}].calls);
        }
    }
    return table;
}

constexpr std::uint64_t norm_bytes = 70 * 8;

// The toy model has five groups: 393 elements; three times 35 and 7, the second aligned; 1, 2 and 1, aligned.
// A buffer holds `shards` equal pieces, each a multiple of `unit` elements.
std::vector<std::uint64_t> buffers(std::uint64_t shards, std::uint64_t unit) {
    const auto up = [](std::uint64_t n, std::uint64_t multiple) { return (n + multiple - 1) / multiple * multiple; };
    const auto buffer = [&](std::uint64_t total) { return shards * up((total + shards - 1) / shards, unit); };
    const std::uint64_t odd = buffer(up(35, unit) + 7);
    return {buffer(393), odd, odd, odd, buffer(2 * unit + 1)};
}
std::uint64_t buffer_elements(std::uint64_t shards, std::uint64_t unit) {
    std::uint64_t all = 0;
    for (const std::uint64_t each : buffers(shards, unit)) { all += each; }
    return all;
}
/// What all-reduces of the buffers in fp64 move: where one is as small as the norm, every rank reads all others.
std::uint64_t all_reduced(std::uint64_t ranks, std::uint64_t shards) {
    std::uint64_t moved = 0;
    for (const std::uint64_t each : buffers(shards, 16)) {
        moved += (each * 8 <= 576 ? ranks : 2) * (ranks - 1) * each * 8;
    }
    return moved;
}
}  // namespace

TEST_CASE("a step's collectives are those of the policy table, calls and bytes, in fp64") {
    using Precision = sk::Precision<double>;
    for (const std::uint64_t n : {2U, 3U, 4U, 8U}) {
        for (const std::uint64_t m : {1U, 3U}) {
            CAPTURE(n);
            CAPTURE(m);
            // Over all ranks: an all-gather and a reduce-scatter move (n - 1) buffers.
            const std::uint64_t once = (n - 1) * buffer_elements(n, 16) * 8;
            const Counted norm{1, n * (n - 1) * norm_bytes};
            const toy::Extents e{n};
            CHECK(measured<Precision>(e, sk::NoShard{}, m) ==
                  Table{{{"all_reduce", "dp"}, {5, all_reduced(n, n)}}, {{"all_reduce", "world"}, norm}});
            CHECK(measured<Precision>(e, sk::ShardOptimizer{}, m) == Table{{{"all_gather", "dp"}, {5, once}},
                                                                           {{"reduce_scatter", "dp"}, {5, once}},
                                                                           {{"all_reduce", "world"}, norm}});
            CHECK(measured<Precision>(e, sk::ShardGradOp{}, m) == Table{{{"all_gather", "dp"}, {5, once}},
                                                                        {{"reduce_scatter", "dp"}, {5 * m, m * once}},
                                                                        {{"all_reduce", "world"}, norm}});
            CHECK(measured<Precision>(e, sk::FullShard{}, m) == Table{{{"all_gather", "dp"}, {10 * m, 2 * m * once}},
                                                                      {{"reduce_scatter", "dp"}, {5 * m, m * once}},
                                                                      {{"all_reduce", "world"}, norm}});
            CHECK(measured<Precision>(e, toy::KeepUntilUpdate{}, m) ==
                  Table{{{"all_gather", "dp"}, {5, once}},
                        {{"reduce_scatter", "dp"}, {5 * m, m * once}},
                        {{"all_reduce", "world"}, norm}});
            CHECK(measured<Precision>(e, toy::ReplicateGradients{}, m) ==
                  Table{{{"all_gather", "dp"}, {5, once}},
                        {{"all_reduce", "dp"}, {5, all_reduced(n, n)}},
                        {{"all_reduce", "world"}, norm}});
            CHECK(measured<Precision>(e, toy::ReduceOnce{}, m) ==
                  Table{{{"all_gather", "dp"}, {10 * m, 2 * m * once}},
                        {{"reduce_scatter", "dp"}, {5, once}},
                        {{"all_reduce", "world"}, norm}});
        }
    }
}

TEST_CASE("hybrid sharding reduces within groups for every microbatch and across them once") {
    for (const std::uint64_t m : {1U, 3U}) {
        CAPTURE(m);
        // 8 ranks as 2 replicas of 4 shards: each of the 2 shard groups moves 3 buffers; each of the 4 pairs of
        // replicas all-reduces a quarter of the buffer, which moves 2 quarters.
        const std::uint64_t buffer = buffer_elements(4, 16) * 8;
        CHECK(measured<sk::Precision<double>>({8}, sk::HybridShard<sk::dynamic>{4}, m) ==
              Table{{{"all_gather", "dp_shard"}, {10 * m, 2 * m * 2 * 3 * buffer}},
                    {{"reduce_scatter", "dp_shard"}, {5 * m, m * 2 * 3 * buffer}},
                    {{"all_reduce", "dp_replicate"}, {5, 2 * buffer}},
                    {{"all_reduce", "world"}, {1, 8 * 7 * norm_bytes}}});
    }
}

TEST_CASE("context-parallel ranks are replicas of a shard, or shards of their own") {
    const std::uint64_t m = 3;
    SUBCASE("replicas: one more all-reduce over cp") {
        const std::uint64_t buffer = buffer_elements(2, 16) * 8;
        CHECK(measured<sk::Precision<double>>({2, 1, 2}, sk::FullShard{}, m) ==
              Table{{{"all_gather", "dp"}, {10 * m, 2 * m * 2 * buffer}},
                    {{"reduce_scatter", "dp"}, {5 * m, m * 2 * buffer}},
                    {{"all_reduce", "cp"}, {5, 2 * buffer}},
                    {{"all_reduce", "world"}, {1, 4 * 3 * norm_bytes}}});
        CHECK(measured<sk::Precision<double>>({2, 1, 2}, sk::NoShard{}, m) ==
              Table{{{"all_reduce", "dp x cp"}, {5, all_reduced(4, 2)}},
                    {{"all_reduce", "world"}, {1, 4 * 3 * norm_bytes}}});
    }
    SUBCASE("shards over dp x cp") {
        const std::uint64_t buffer = buffer_elements(4, 16) * 8;
        CHECK(measured<sk::Precision<double>>({2, 1, 2},
                                              sk::ShardOver<sk::FullShard, sk::Axes<sk::DpShard, sk::Cp>>{},
                                              m) == Table{{{"all_gather", "dp x cp"}, {10 * m, 2 * m * 3 * buffer}},
                                                          {{"reduce_scatter", "dp x cp"}, {5 * m, m * 3 * buffer}},
                                                          {{"all_reduce", "world"}, {1, 4 * 3 * norm_bytes}}});
    }
    SUBCASE("tensor-parallel ranks share nothing but the norm") {
        const std::uint64_t buffer = buffer_elements(2, 16) * 8;
        CHECK(measured<sk::Precision<double>>({2, 2, 1}, sk::ShardGradOp{}, m) ==
              Table{{{"all_gather", "dp"}, {5, 2 * buffer}},
                    {{"reduce_scatter", "dp"}, {5 * m, m * 2 * buffer}},
                    {{"all_reduce", "world"}, {1, 4 * 3 * norm_bytes}}});
    }
}

TEST_CASE("bytes follow the wire types: parameters in the gathered type, gradients in their own") {
    const std::uint64_t elements = buffer_elements(4, 64);  // 128 bytes of the narrowest type, bf16
    CHECK(measured<sk::Precision<sk::bf16>>({4}, sk::FullShard{}, 3) ==
          Table{{{"all_gather", "dp"}, {30, 6 * 3 * elements * 2}},
                {{"reduce_scatter", "dp"}, {15, 3 * 3 * elements * 2}},
                {{"all_reduce", "world"}, {1, 4 * 3 * norm_bytes}}});
    // Out of place into fp32: each element is read as bf16 and written as fp32. Four of the groups have 256 elements,
    // few enough that every rank reads all others.
    const std::uint64_t small = 4 * 256;
    CHECK(measured<sk::Precision<sk::bf16>>({4}, sk::NoShard{}, 3) ==
          Table{{{"all_reduce", "dp"}, {5, 3 * (elements - small) * (2 + 4) + 4 * 3 * small * 2}},
                {{"all_reduce", "world"}, {1, 4 * 3 * norm_bytes}}});
}

TEST_CASE("one rank communicates nothing") {
    CHECK(measured<sk::Precision<double>>({1}, sk::NoShard{}, 3).empty());
    CHECK(measured<sk::Precision<double>>({1}, sk::FullShard{}, 3).empty());
    CHECK(measured<sk::Precision<double>>({1}, sk::ShardOptimizer{}, 3).empty());
}

}  // namespace traffic_test
