// SPDX-License-Identifier: Apache-2.0
// What a norm and a step give to a GPU: the nodes of the graph that they are captured into, and the host's calls.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
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
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/local_shards.hpp>
#include <shardkit/step/reduce.hpp>

#include "../rank_checks.hpp"
#include "alone.hpp"
#include "captured_step.hpp"
#include "paced_ranks.hpp"
#include "test_size.hpp"

namespace launches_test {

namespace {

namespace sk = shardkit;
using Layer = sk::Sharded<sk::TensorList<float>, sk::ShardOptimizer>;

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
    std::size_t saved = 0;     ///< where the step takes the norm itself
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
            const auto reduced = [&](const auto& take) {
                sk::Accumulation accumulation{model};
                for (auto& layer : layers) { accumulation.add_zero(layer); }
                take(std::move(accumulation));
            };
            reduced([&](auto&& all) { optimizer.step(std::move(all), {.max_norm = 1}); });
            const std::size_t apart = nodes_of(streams, [&] {
                reduced([&](auto&& all) {
                    auto sums = sk::reduce(std::move(all), sk::mean);
                    const auto norm = sk::global_norm(sums);
                    optimizer.step(std::move(sums), sk::clip(norm, 1));
                });
            });
            const std::size_t at_once = nodes_of(
                streams, [&] { reduced([&](auto&& all) { optimizer.step(std::move(all), {.max_norm = 1}); }); });
            alone(rank.rank(), 3, [&] {
                counts.nodes = nodes;
                counts.saved = apart - at_once;
            });
        });
    CHECK(error == "");
    return counts;
}

}  // namespace

TEST_CASE("nccl: a norm and a step of any number of small groups are six nodes of a graph, or five") {
    for (const std::size_t groups : {1U, 10U, 100U, 300U}) {
        if (test_size::reduced() && groups == 300) { continue; }
        CAPTURE(groups);
        const Counts counts = counts_of(groups);
        // BeginNorm, the norm, its all-reduce, FinishNorm, BeginStep with BeginUpdates, and the update.
        CHECK(counts.nodes == 6);
        CHECK(counts.saved == 1);
        CHECK(counts.launches == ranks * 5);
        CHECK(counts.copies == 0);
        CHECK(counts.records == ranks * 4);  // around the all-reduce and of the verb, and behind the update
        MESSAGE(groups << " groups: " << counts.nodes << " nodes, " << counts.waits / ranks << " waits of a stream, "
                       << counts.microseconds << " us of the host");
    }
}

TEST_CASE("nccl: a graph of a norm alone has all of it, and spoils no norm that is read later") {
    const std::string error = paced_ranks::run(
        sk::DeviceMesh<ranks>{}, paced_ranks::all_paces[0], {}, [&](auto& rank, const auto& streams) {
            Layer layer(rank, "layer", sk::TensorList<float>{{"w", {8, 8}}});
            sk::Model model{layer};
            const std::span<float> elements = sk::gradient_shard(layer);
            const auto reduced = sk::assume_reduced(model);
            const auto set = [&](float value) {
                streams.compute.synchronize();
                std::fill(elements.begin(), elements.end(), value);
            };
            set(1);
            CHECK(sk::global_norm(reduced).value() == 8);
            std::optional<sk::GlobalNorm> norm;
            const step_trainer::CapturedStep graph(streams, [&] { norm.emplace(sk::global_norm(reduced)); });
            for (const float value : {2.0F, 3.0F}) {
                set(value + 1);
                const auto other = sk::global_norm(reduced);
                set(value);
                graph.launch();
                CHECK(norm->value() == 8 * value);
                CHECK(other.value() == 8 * (value + 1));
            }
        });
    CHECK(error == "");
}

}  // namespace launches_test
