// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include <shardkit/plan.hpp>
#include <shardkit/schedule.hpp>
#include <shardkit/shardkit.hpp>

namespace written_between_steps {

namespace sk = shardkit;

enum class What { initialize, load, list };
constexpr std::size_t numel = 500;
struct Weight : sk::Param<"weight", double, numel> {};

/// Two ranks write a layer's values, or list them, while the gather behind the update is under way: whether each sees
/// what was written, or what the update has made. Gathers come late, and rank 1 writes once rank 0 has read, so that
/// one for which nobody waits brings rank 0 what rank 1 had before.
inline bool is_right(const sk::DynamicPolicy& policy, What what) {
    std::atomic<bool> read = false;
    std::atomic<bool> right = true;
    struct SetAtEnd {  // also where the rank fails, so that the other one goes on
        std::atomic<bool>& flag;
        ~SetAtEnd() {
            flag = true;
            flag.notify_all();
        }
    };
    const auto on_rank = [&](auto& rank) {
        const SetAtEnd has_read{read};
        sk::Sharded<Weight, sk::DynamicPolicy> layer(rank, "layer", {}, {policy});
        const sk::Model model{layer};
        sk::SGD optimizer{model, {.learning_rate = 1}};
        const auto step = [&] {
            sk::Accumulation accumulation{model};
            { const auto window = layer.unshard(); }
            rank.communication_stream().submit([] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
            auto gradients = accumulation.gradients(layer);
            for (double& value : gradients[Weight{}]) { value = 1; }
            accumulation.add(std::move(gradients));
            optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
        };
        const sk::Schedule recorded = sk::schedule::record(model, step);
        const auto following =
            sk::schedule::follow(model, sk::schedule::gather_after_update(recorded, sk::describe_groups(model)));
        step();  // to -2 everywhere, of which a rank has the other's half once it is gathered
        if (what != What::list && rank.rank() == 1) { read.wait(false); }
        const auto see = [&](const double* values, std::size_t count, double expected) {
            for (std::size_t i = 0; i < count; ++i) {
                if (values[i] != expected) { right = false; }
            }
        };
        if (what == What::list) {
            for (const sk::ShardInfo& shard : layer.shards()) {
                if (!shard.current) { right = false; }
                see(static_cast<const double*>(shard.data), shard.range.size(), -2);
            }
        } else if (what == What::initialize) {
            layer.initialize([](auto, auto, std::uint64_t) { return 7; });
        } else {
            layer.load(Weight{}, std::vector<double>(numel, 7));
        }
        const auto window = layer.unshard();
        see(window[Weight{}].data(), numel, what == What::list ? -2 : 7);
    };
    sk::threads::run(sk::DeviceMesh<2>{}, on_rank, {}, {.overlap = sk::threads::Overlap::threads});
    return right;
}

}  // namespace written_between_steps
