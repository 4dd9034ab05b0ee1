// SPDX-License-Identifier: Apache-2.0
// What a norm and a step give to a GPU: the nodes of the graph that they are captured into, and the host's calls.
#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/norm.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/shard_optimizer.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/reduce.hpp>

#include "../rank_checks.hpp"
#include "alone.hpp"
#include "paced_ranks.hpp"

namespace launches_test {

namespace {

namespace sk = shardkit;
using Layer = sk::Sharded<sk::TensorList<float>, sk::ShardOptimizer, gpu_ranks::Engine>;

constexpr std::size_t ranks = 2;

/// Nodes of what `work` gives to both streams.
template <class Streams, class Work>
std::size_t nodes_of(const Streams& streams, const Work& work) {
    using sk::gpu::detail::check;
    cudaGraph_t graph = nullptr;
    std::size_t nodes = 0;
    check(cudaStreamBeginCapture(streams.compute.native(), cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
    streams.communication.wait(streams.compute.record());
    work();
    streams.compute.wait(streams.communication.record());
    check(cudaStreamEndCapture(streams.compute.native(), &graph), "cudaStreamEndCapture");
    streams.communication.wait(streams.compute.record());
    check(cudaGraphGetNodes(graph, nullptr, &nodes), "cudaGraphGetNodes");
    check(cudaGraphDestroy(graph), "cudaGraphDestroy");
    return nodes;
}

struct Counts {
    std::size_t nodes = 0;
    std::size_t launches = 0;  ///< of both ranks' plain steps, as the others
    std::size_t copies = 0;
    std::size_t records = 0;
    std::size_t waits = 0;
    double microseconds = 0;  ///< of the host for a step, while nothing of it runs
};

/// Fewer than Options::verbs_ahead, less the one before them: the host waits for none.
constexpr int timed_steps = 6;

/// Of a norm and a clipped AdamW step of that many groups, whose gradients are reduced.
Counts counts_of(std::size_t groups) {
    Counts counts;
    Alone alone(ranks);
    const std::string error = paced_ranks::run(
        sk::DeviceMesh<ranks>{}, paced_ranks::all_paces[0], {}, [&](auto& rank, const auto& streams) {
            std::vector<Layer> layers;
            for (std::size_t i = 0; i < groups; ++i) {
                layers.emplace_back(rank, "layers." + std::to_string(i),
                                    sk::TensorList<float>{{"w", {8, 8}}, {"b", {64}}});
            }
            sk::Model model{layers};
            sk::AdamW optimizer{model, {}};
            const auto step = [&] {
                auto reduced = sk::assume_reduced(model);
                const auto norm = sk::global_norm(reduced);
                optimizer.step(std::move(reduced), sk::clip(norm, 1));
            };
            step();
            streams.compute.synchronize();
            streams.communication.synchronize();
            alone(rank.rank(), 0, [] { standin::reset_calls(); });
            step();
            alone(rank.rank(), 1, [&] {
                counts.launches = standin::calls("cudaLaunchHostFunc");
                counts.copies = standin::calls("cudaMemcpyAsync") + standin::calls("cudaMalloc");
                counts.records = standin::calls("cudaEventRecord");
                counts.waits = standin::calls("cudaStreamWaitEvent");
            });
            const auto timed = [&] {
                for (int i = 0; i < timed_steps; ++i) { step(); }
            };
            alone(rank.rank(), 2, [&] {
                counts.microseconds =
                    std::chrono::duration<double, std::micro>(rank_checks::duration_of(timed)).count() / timed_steps;
            });
            if (rank.rank() != 0) { timed(); }
            const std::size_t nodes = nodes_of(streams, step);
            alone(rank.rank(), 3, [&] { counts.nodes = nodes; });
        });
    CHECK(error == "");
    return counts;
}

}  // namespace

TEST_CASE("nccl: a norm and a step of any number of small groups are at most eight nodes of a graph") {
    for (const std::size_t groups : {1U, 10U, 100U, 300U}) {
        CAPTURE(groups);
        const Counts counts = counts_of(groups);
        // BeginNorm, the norm, its all-reduce, FinishNorm, BeginStep, BeginUpdates and the update.
        CHECK(counts.nodes == 7);
        CHECK(counts.launches == ranks * 6);
        CHECK(counts.copies == 0);
        CHECK(counts.records == ranks * 4);  // around the all-reduce and of the verb, and behind the update
        MESSAGE(groups << " groups: " << counts.nodes << " nodes, " << counts.waits / ranks << " waits of a stream, "
                       << counts.microseconds << " us of the host");
    }
}

}  // namespace launches_test
