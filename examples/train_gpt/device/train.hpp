// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include <shardkit/backend/cuda/step_graph.hpp>
#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/comm/traffic_log.hpp>
#include <shardkit/core/element.hpp>

#include "../model/convert.hpp"
#include "../program/adamw.hpp"
#include "../program/rank_steps.hpp"
#include "place.hpp"
#include "products.hpp"

namespace train_gpt {

/// Launches in the order of a rank's compute stream.
struct EngineLaunch {
    using Kernels = shardkit::host::AnyKernels;

    shardkit::Stream stream;

    template <class Work>
    void operator()(std::size_t n, const Work& work) const {
        Kernels::for_each_index(stream, n, work);
    }
    template <class A>
    void operator()(std::size_t n, const Fill<A>& work) const {
        Kernels::fill(stream, std::span<A>(work.to, n), work.value);
    }
    template <shardkit::FloatingElement From, shardkit::FloatingElement To>
    void operator()(std::size_t n, const Convert<From, To>& work) const {
        Kernels::convert(stream, std::span<const From>(work.from, n), std::span<To>(work.to, n));
    }
};
using DevicePlace = DevicePlaceOf<EngineLaunch>;

/// Trains on one rank; `results`: as RankSteps has them. `launched` is called behind each launch of a graph.
template <class T>
void train_on_device(
    sk::Rank& rank, const Job& job, std::size_t workspace_bytes, Results* results,
    const std::function<void()>& launched = [] {}) {
    const auto workspace = rank.local_buffer<std::uint8_t>(workspace_bytes);
    const DeviceProducts products(rank.compute_stream().native(), workspace.span());
    RankSteps<T, DevicePlace> steps(
        rank, job, results, nullptr,
        [](const auto& groups, const Options& options) { return make_adamw<sk::StateFormat::full>(groups, options); },
        {EngineLaunch{rank.compute_stream()}, products});
    std::optional<sk::gpu::StepGraph> graph;
    sk::TrafficLog of_graph;
    // The first step is a plain one: it takes memory, which a capture refuses.
    bool plain = true;
    steps.run([&](auto& trainer) {
        if (std::exchange(plain, !job.options.graph)) { return trainer.step(); }
        if (!graph) {
            rank.traffic().clear();
            graph.emplace(rank.streams(), [&] { trainer.step(); });
            of_graph = rank.traffic();
        } else {
            rank.traffic() += of_graph;  // a launch calls no verbs
        }
        graph->launch();
        launched();
    });
}

}  // namespace train_gpt
