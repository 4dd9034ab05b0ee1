// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/optim/adamw.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>

#include "unit/sharded/linear_layer.hpp"

namespace sk = shardkit;

namespace disjoint_memory_test {

using toy::Flat;

namespace {

struct Held {
    std::uintptr_t begin;
    std::uintptr_t end;
    std::size_t rank;
};

/// Everything that a rank's verbs show of its memory: shards, states, windows, gradients full and reduced.
template <class Precision>
std::vector<Held> memory_of_all_ranks(const sk::DynamicPolicy& policy) {
    std::vector<Held> held;
    std::mutex mutex;
    sk::threads::run(Flat{4}, [&](auto& rank) {
        auto a = toy::linear_layer<sk::DynamicPolicy, Precision>(rank, "a", policy);
        auto b = toy::linear_layer<sk::DynamicPolicy, Precision>(rank, "b", policy);
        sk::Model model{a, b};
        sk::AdamW optimizer{model, {}};
        std::vector<Held> mine;
        const auto hold = [&](const void* data, std::size_t bytes) {
            const auto begin = reinterpret_cast<std::uintptr_t>(data);
            mine.push_back({begin, begin + bytes, rank.rank()});
        };
        const auto hold_listed = [&](const std::vector<sk::ShardInfo>& list) {
            for (const auto& info : list) { hold(info.data, info.local.size() * sk::size_of(info.type)); }
        };
        sk::Accumulation accumulation{model};
        for (auto* layer : {&a, &b}) {
            const auto window = layer->unshard();
            hold(window[toy::Weight{}].data(), 35 * sizeof(typename Precision::Gather));
            hold(window[toy::Bias{}].data(), 7 * sizeof(typename Precision::Gather));
            auto handle = accumulation.gradients(*layer);
            hold(handle[toy::Weight{}].data(), 35 * sizeof(typename Precision::Gradient));
            hold(handle[toy::Bias{}].data(), 7 * sizeof(typename Precision::Gradient));
            accumulation.add(std::move(handle));
            const std::span<const typename Precision::Reduction> reduced =
                sk::spi::group(*layer).gradients().reduced();
            hold(reduced.data(), reduced.size_bytes());
            hold_listed(layer->shards());
        }
        hold_listed(optimizer.shards());
        {
            const std::lock_guard lock(mutex);
            held.insert(held.end(), mine.begin(), mine.end());
        }
        sk::barrier(rank.world(),
                    rank.compute_stream());  // none frees its memory before every one has listed its own
    });
    return held;
}

template <class Precision>
void check(const sk::DynamicPolicy& policy) {
    CAPTURE(policy.name());
    auto held = memory_of_all_ranks<Precision>(policy);
    REQUIRE(held.size() > 4 * 10);
    std::sort(held.begin(), held.end(), [](const Held& x, const Held& y) { return x.begin < y.begin; });
    // Ranges of one rank may overlap (a shard within its full buffer); those of two ranks may not.
    for (std::size_t i = 0; i < held.size(); ++i) {
        for (std::size_t j = i + 1; j < held.size() && held[j].begin < held[i].end; ++j) {
            CHECK(held[i].rank == held[j].rank);
        }
    }
}

}  // namespace

TEST_CASE("no rank's memory overlaps another's") {
    check<sk::Precision<float>>(sk::DynamicPolicy(sk::NoShard{}));
    check<sk::Precision<float>>(sk::DynamicPolicy(sk::FullShard{}));
    check<sk::Precision<sk::bf16>>(sk::DynamicPolicy(sk::ShardOptimizer{}));
    check<sk::Precision<sk::bf16>>(sk::DynamicPolicy(sk::ShardGradOp{}));
    check<sk::Precision<sk::bf16>>(sk::DynamicPolicy(sk::HybridShard<2>{}));
}

}  // namespace disjoint_memory_test
