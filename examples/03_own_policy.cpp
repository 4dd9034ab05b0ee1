// SPDX-License-Identifier: Apache-2.0
// A policy of one's own: parameters are sharded at rest as under FullShard, but a full copy, once gathered, is
// kept until the optimizer has changed the shards. One all-gather per step instead of one per window.
// g++ -std=c++20 -Iinclude examples/03_own_policy.cpp -pthread -o example && ./example
#include <shardkit/plan.hpp>
#include <shardkit/shardkit.hpp>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace sk = shardkit;

struct GatherOncePerStep {
    static constexpr std::string_view name = "gather_once_per_step";
    static constexpr sk::Placement parameters = sk::Placement::sharded;
    static constexpr sk::Placement gradients = sk::Placement::sharded;
    static constexpr sk::Placement optimizer = sk::Placement::sharded;
    static constexpr sk::Accumulate accumulate = sk::Accumulate::unreduced;  // one reduce-scatter per step
    static constexpr sk::Release release = sk::Release::at_update;
    static constexpr std::size_t shard_group(std::size_t dp) noexcept { return dp; }
};

// The library says by name what a policy lacks, and which combinations cannot work.
static_assert(sk::ShardPolicy<GatherOncePerStep> && sk::rules::PolicyRules<GatherOncePerStep>::hold);

struct Weight : sk::Param<"weight", double, 100> {};

struct Result {
    std::vector<double> weight = std::vector<double>(100);
    std::uint64_t gathers = 0;
    std::uint64_t reductions = 0;
};

constexpr std::uint64_t steps = 3;
constexpr std::uint64_t microbatches = 4;

template <class Policy>
Result train() {
    Result result;
    sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
        sk::Sharded<Weight, Policy> layer{rank, "layer"};
        sk::Model model{layer};
        sk::SGD optimizer{model, {.learning_rate = 0.125}};
        rank.traffic().clear();  // of what making the layer took: ranks compare what they make
        for (std::uint64_t step = 0; step < steps; ++step) {
            sk::Accumulation accumulation{model, microbatches};
            for (std::uint64_t m = 0; m < microbatches; ++m) {
                const auto window = layer.unshard();
                auto gradients = accumulation.gradients(layer);
                for (std::size_t i = 0; i < 100; ++i) { gradients[Weight{}][i] += window[Weight{}][i] - 1.0; }
                accumulation.add(std::move(gradients));
            }
            optimizer.step(std::move(accumulation));
        }
        if (rank.rank() == 0) {
            result.gathers = rank.traffic().total(sk::Verb::all_gather).calls;
            result.reductions = rank.traffic().total(sk::Verb::reduce_scatter).calls;
        }
        layer.read_full_on(0, Weight{}, rank.rank() == 0 ? std::span(result.weight) : std::span<double>{});
    });
    return result;
}

int main() {
    const Result full = train<sk::FullShard>();
    const Result own = train<GatherOncePerStep>();
    const auto print = [](std::string_view name, const Result& result) {
        std::printf("%-22s all-gathers %2d  reduce-scatters %2d  weight[0] %.6f\n", name.data(), int(result.gathers),
                    int(result.reductions), result.weight[0]);
    };
    std::printf("%llu steps of %llu microbatches on two ranks\n", static_cast<unsigned long long>(steps),
                static_cast<unsigned long long>(microbatches));
    print(sk::FullShard::name, full);
    print(GatherOncePerStep::name, own);

    // All numbers here are dyadic, so both orders of addition give the same bits.
    const bool right = own.weight == full.weight && full.gathers == steps * microbatches && own.gathers == steps &&
                       full.reductions == steps * microbatches && own.reductions == steps;
    std::printf("fewer collectives, same weights: %s\n", right ? "yes" : "NO");
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
