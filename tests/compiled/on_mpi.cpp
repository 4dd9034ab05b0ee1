// SPDX-License-Identifier: Apache-2.0
// README's first trainer in the compiled form on processes: the same number on every rank, and the rank's own stream.
#ifndef SHARDKIT_COMPILED
#define SHARDKIT_COMPILED
#endif
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include <shardkit/mpi.hpp>
#include <shardkit/shardkit.hpp>

namespace sk = shardkit;

struct Weight : sk::Param<"weight", float, 1000> {};

int main() {
    const sk::mpi::Environment environment;
    bool right = true;
    sk::mpi::run(sk::DeviceMesh<2>{}, [&](sk::Rank& rank) {
        sk::Sharded<Weight, sk::FullShard> layer{rank, "layer"};
        sk::Model model{layer};
        sk::AdamW optimizer{model, {.learning_rate = 0.5}};
        sk::Accumulation accumulation{model};
        auto gradients = accumulation.gradients(layer);
        for (float& g : gradients[Weight{}]) { g += static_cast<float>(rank.rank() + 1); }
        accumulation.add(std::move(gradients));
        const auto norm = optimizer.step(std::move(accumulation));
        const auto window = layer.unshard();
        for (const float w : window[Weight{}]) { right = right && std::abs(w + 0.5F) < 1e-6F; }
        right = right && norm.value() == std::sqrt(1.5 * 1.5 * 1000);
        right = right && sk::all_reduce_value(rank, static_cast<double>(rank.rank())) == 1;
        if (rank.rank() == 0) {
            std::printf("weight[999] = %g, norm %g\n", static_cast<double>(window[Weight{}][999]), norm.value());
        }
    });
    if (!right) { std::fprintf(stderr, "another number than -0.5, or another norm\n"); }
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
