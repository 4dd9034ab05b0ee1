// SPDX-License-Identifier: Apache-2.0
// One training loop, seven policies: what a rank holds, which collectives it calls, what they move, and the losses.
// g++ -std=c++20 -Iinclude examples/02_compare_policies.cpp -pthread -o example && ./example
#include <shardkit/plan.hpp>
#include <shardkit/shardkit.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace sk = shardkit;

struct Weight : sk::Param<"weight", float, 64, 64> {};

constexpr std::size_t steps = 5;
constexpr double hybrid_bound = 1e-6;  // relative

struct Result {
    std::vector<double> losses;
    std::uint64_t bytes_held = 0;
    std::string collectives;
    std::uint64_t bytes_moved = 0;
};

double squared(float x) { return static_cast<double>(x) * static_cast<double>(x); }

// Eight layers, whose loss is half the squared distance of their weights to a target that differs by rank.
template <class Policy>
Result train() {
    Result result;
    sk::threads::run(sk::DeviceMesh<4>{}, [&](auto& rank) {
        using Layer = sk::Sharded<Weight, Policy>;
        std::vector<Layer> layers;
        for (int i = 0; i < 8; ++i) { layers.emplace_back(rank, "layers." + std::to_string(i)); }
        sk::Model model{layers};
        model.initialize([](auto, auto, std::uint64_t i) { return std::sin(static_cast<double>(i)); });
        sk::AdamW optimizer{model, {.learning_rate = 0.05}};
        const float target = 0.25F * static_cast<float>(rank.rank());
        for (std::size_t step = 0; step < steps; ++step) {
            if (step == 2) { rank.traffic().clear(); }  // from here on every step is like the one before
            double loss = 0;
            sk::Accumulation accumulation{model};
            for (Layer& layer : layers) {  // forward
                const auto window = layer.unshard();
                for (std::size_t i = 0; i < 64 * 64; ++i) { loss += squared(window[Weight{}][i] - target) / 2; }
            }
            for (std::size_t l = layers.size(); l > 0; --l) {  // backward: FullShard gathers again
                Layer& layer = layers[l - 1];
                const auto window = layer.unshard();
                auto gradients = accumulation.gradients(layer);
                for (std::size_t i = 0; i < 64 * 64; ++i) { gradients[Weight{}][i] += window[Weight{}][i] - target; }
                accumulation.add(std::move(gradients));
            }
            optimizer.step(std::move(accumulation), {.max_norm = 10.0});
            if (rank.rank() == 0) { result.losses.push_back(loss); }
        }
        if (rank.rank() == 0) {
            result.bytes_held = sk::plan(model).memory.total().value;
            for (const sk::Verb verb : {sk::Verb::all_gather, sk::Verb::reduce_scatter, sk::Verb::all_reduce}) {
                const auto total = rank.traffic().total(verb);
                if (total.calls == 0) { continue; }
                result.collectives += std::string(result.collectives.empty() ? "" : ", ") +
                                      std::to_string(total.calls / (steps - 2)) + " " + std::string(name(verb));
                result.bytes_moved += total.moved.value / (steps - 2);
            }
        }
    });
    return result;
}

template <class Policy>
bool row(const Result& first) {
    const Result result = train<Policy>();
    // Hybrid groups add the gradients in another order.
    const double bound = Policy::shard_group(4) == 4 ? 0 : hybrid_bound;
    bool same = result.losses.size() == first.losses.size();
    for (std::size_t i = 0; same && i < result.losses.size(); ++i) {
        same = std::abs(result.losses[i] - first.losses[i]) <= bound * first.losses[i];
    }
    std::printf(
        "%-16s %10llu %10llu  %13.6f  %s\n", Policy::name.data(), static_cast<unsigned long long>(result.bytes_held),
        static_cast<unsigned long long>(result.bytes_moved), result.losses.back(), result.collectives.c_str());
    return same;
}

int main() {
    std::printf("%-16s %10s %10s  %13s  %s\n", "policy", "bytes held", "moved/step", "last loss",
                "collectives/step, the norm's included");
    const Result first = train<sk::NoShard>();
    bool same = row<sk::NoShard>(first);
    same = row<sk::ShardOptimizer>(first) && same;
    same = row<sk::ShardGradOp>(first) && same;
    same = row<sk::FullShard>(first) && same;
    same = row<sk::HybridShard<2>>(first) && same;
    same = row<sk::HybridOptimizer<2>>(first) && same;
    same = row<sk::SecondaryShard<2>>(first) && same;
    std::printf("losses of every step equal to no_shard's in every bit, those of groups within %g of them: %s\n",
                hybrid_bound, same ? "yes" : "NO");
    return same ? EXIT_SUCCESS : EXIT_FAILURE;
}
