// SPDX-License-Identifier: Apache-2.0
// One parameter, four ranks, FullShard: who holds what, what a window shows, one step of SGD.
// g++ -std=c++20 -Iinclude examples/01_shard_one_parameter.cpp -pthread -o example && ./example
#include <shardkit/sharded/list_shards.hpp>
#include <shardkit/shardkit.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

namespace sk = shardkit;

struct Weight : sk::Param<"weight", float, 10, 13> {};  // 130 elements: no multiple of anything handy

int main() {
    std::mutex printing;
    std::vector<std::string> held(4);
    bool right = true;

    sk::threads::run(sk::DeviceMesh<4>{}, [&](auto& rank) {
        sk::Sharded<Weight, sk::FullShard> layer{rank, "layer"};

        // Local work: each rank computes the elements that it holds.
        layer.initialize([](auto, auto, std::uint64_t i) { return static_cast<double>(i); });

        for (const sk::ShardInfo& shard : layer.shards()) {
            held[rank.rank()] =
                "elements [" + std::to_string(shard.range.begin) + ", " + std::to_string(shard.range.end) + ")";
        }

        // Full parameters exist between unshard and reshard, and only there.
        auto window = layer.unshard();
        const auto weight = window[Weight{}];
        bool same = weight.size() == 130;
        for (std::size_t i = 0; i < weight.size(); ++i) { same = same && weight[i] == static_cast<float>(i); }
        layer.reshard(std::move(window));

        // A gradient of (rank + 1) everywhere: the mean over four ranks is 2.5.
        sk::Model model{layer};
        sk::SGD optimizer{model, {.learning_rate = 0.5}};
        sk::Accumulation accumulation{model};
        auto gradients = accumulation.gradients(layer);
        for (float& g : gradients[Weight{}]) { g += static_cast<float>(rank.rank() + 1); }
        accumulation.add(std::move(gradients));
        optimizer.step(std::move(accumulation));

        std::vector<float> updated(130);
        layer.read_full(Weight{}, std::span(updated));
        for (std::size_t i = 0; i < updated.size(); ++i) {
            same = same && updated[i] == static_cast<float>(i) - 0.5F * 2.5F;
        }
        const std::lock_guard lock(printing);
        right = right && same;
    });

    for (std::size_t r = 0; r < held.size(); ++r) {
        std::printf("rank %zu rests with %s\n", r, held[r].empty() ? "padding only" : held[r].c_str());
    }
    std::printf("a window shows all 130 elements on every rank, and the step took 1.25 off each: %s\n",
                right ? "yes" : "NO");
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
