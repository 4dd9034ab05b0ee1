// SPDX-License-Identifier: Apache-2.0
// Trains on the NCCL engine over the stand-in, each stream as early and as late as it may work, and on threads: 1
// when a bit differs. Built against headers in which one wait between streams is missing.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/step/local_shards.hpp>

#include "unit/backend/nccl/small_trainer_runs.hpp"
#include "unit/schedule/written_between_steps.hpp"

namespace {

namespace sk = shardkit;
using small_trainer::Mesh;
using small_trainer::Training;

template <class T, class Policy>
bool fails(const Mesh& mesh, const Training& training) {
    const sk::DynamicPolicy policy(Policy{});
    const std::string difference =
        small_trainer::difference<T>(mesh, policy, training, small_trainer::on_threads<T>(mesh, policy, training));
    if (difference.empty()) { return false; }
    std::printf("%s, %zu microbatches, %zu in flight, %s\n", std::string(Policy::name).c_str(), training.microbatches,
                training.in_flight, difference.c_str());
    return true;
}

/// The buffer of a window that was begun and dropped is free, and in this checked build filled with NaN, however late
/// its gather comes.
bool dropped_window_is_not_cleared() {
    gpu_ranks::restart(standin::Pace::lazy);
    std::atomic<bool> wrong = false;
    const auto ended =
        gpu_ranks::with_world(2, gpu_ranks::patient(), [&](const gpu_ranks::Comm& comm, sk::nccl::World& world) {
            const auto streams = world.streams();
            sk::Rank<gpu_ranks::Engine, Mesh> rank(Mesh(2, 1, 1), comm, {.in_flight = 1}, streams);
            using Weight = small_trainer::Weight<float>;
            sk::Sharded<Weight, sk::FullShard, gpu_ranks::Engine> layer{rank, "layer"};
            const float* values = nullptr;
            {
                const auto window = layer.unshard();
                values = window[Weight{}].data();
            }
            { const auto dropped = layer.begin_unshard(); }
            streams.compute.synchronize();
            streams.communication.synchronize();
            if (!std::isnan(values[0])) { wrong = true; }
        });
    if (wrong) { std::printf("a dropped window's buffer still has values\n"); }
    return wrong || !gpu_ranks::first_error(ended).empty();
}

/// Ranks that make different groups are refused, also where the communication stream is ahead of the compute stream.
bool different_groups_are_taken() {
    gpu_ranks::restart(standin::Pace::lazy);
    std::atomic<bool> taken = false;
    const auto ended =
        gpu_ranks::with_world(2, gpu_ranks::patient(), [&](const gpu_ranks::Comm& comm, sk::nccl::World& world) {
            const auto streams = world.streams();
            standin::set_pace(streams.communication.native(), standin::Pace::eager);
            sk::Rank<gpu_ranks::Engine, Mesh> rank(Mesh(2, 1, 1), comm, {.in_flight = 1}, streams);
            try {
                using Layer = sk::Sharded<small_trainer::Weight<float>, sk::FullShard, gpu_ranks::Engine>;
                const Layer layer{rank, rank.rank() == 0 ? "one" : "other"};
                taken = true;
            } catch (const std::invalid_argument&) {}  // as it should be
        });
    if (taken) { std::printf("ranks made different groups, and nobody noticed\n"); }
    return taken || !gpu_ranks::first_error(ended).empty();
}

/// What is written or listed between two steps does not mix with a gather that is under way.
bool writes_do_not_wait() {
    using written_between_steps::What;
    for (const What what : {What::initialize, What::list}) {
        if (written_between_steps::is_right(sk::DynamicPolicy(sk::ShardOptimizer{}), what)) { continue; }
        std::printf("what was written or listed is mixed with what a gather brought\n");
        return true;
    }
    return false;
}

/// Reduced gradients that a program reads are there, whatever the streams still do.
bool sums_are_read_early() {
    std::atomic<bool> early = false;
    sk::threads::run(sk::DeviceMesh<2>{},
                     [&](auto& rank) {
                         using Weight = small_trainer::Weight<float>;
                         sk::Sharded<Weight, sk::ShardGradOp, sk::threads::Engine> layer{rank, "layer"};
                         sk::Model model{layer};
                         sk::Accumulation accumulation{model};
                         auto gradients = accumulation.gradients(layer);
                         for (float& element : gradients[Weight{}]) { element = 1; }
                         accumulation.add(std::move(gradients));
                         if (rank.rank() == 1) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }
                         const auto reduced = sk::reduce(std::move(accumulation), sk::sum);
                         const auto shard = sk::gradient_shard(reduced, layer);
                         sk::read_shards(layer, [&](const auto& run) {
                             for (const float sum : shard.of(run)) {
                                 if (sum != 2) { early = true; }
                             }
                         });
                     },
                     {}, {.overlap = sk::threads::Overlap::threads});
    if (early) { std::printf("reduced gradients were read before they were reduced\n"); }
    return early;
}

}  // namespace

int main() {
    static_assert(sk::checked);
    if (sums_are_read_early() || dropped_window_is_not_cleared() || different_groups_are_taken() ||
        writes_do_not_wait()) {
        return 1;
    }
    const Mesh mesh(2, 1, 1);
    for (const Training& training :
         {Training{.microbatches = 3, .in_flight = 1}, Training{.microbatches = 3}, Training{.prefetch = true},
          Training{.norm = false}, Training{.abandon = true},
          Training{.microbatches = 3, .steps = 4, .abandon = true, .scheduled = true},
          Training{.microbatches = 3, .scheduled = true, .keeps = false},
          Training{.microbatches = 3, .scheduled = true, .keeps = false, .overlaps = true}}) {
        if (fails<float, sk::NoShard>(mesh, training) || fails<float, sk::ShardGradOp>(mesh, training) ||
            fails<float, sk::FullShard>(mesh, training) || fails<sk::bf16, sk::FullShard>(mesh, training)) {
            return 1;
        }
    }
}
