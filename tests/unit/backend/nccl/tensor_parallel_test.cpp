// SPDX-License-Identifier: Apache-2.0
// The loss of a split vocabulary on the NCCL engine over the stand-in, with as many workers for a row as on a GPU:
// the losses and gradients of the threads engine, whenever the stream runs.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/tensor_parallel/cross_entropy.hpp>
#include <shardkit/tensor_parallel/embedding.hpp>

#include "largest_difference.hpp"
#include "paced_ranks.hpp"

namespace sk = shardkit;

namespace tensor_parallel_test {

namespace {

using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;

constexpr std::size_t vocabulary = 101;
constexpr std::size_t tokens = 9;
constexpr std::size_t width = 3;

struct Outcome {
    std::vector<float> losses;
    std::vector<float> logits;
    std::vector<float> embedded;
};

/// All memory is the engine's; the host waits once, at the end.
template <class Rank>
Outcome pass(Rank& rank) {
    using Kernels = sk::host::AnyKernels;
    const auto tp = rank.template sub_mesh<sk::Axes<sk::Tp>>();
    const auto part = sk::tp::VocabularyPart::of(vocabulary, 104, tp.size(), tp.rank());
    std::vector<float> host_logits(tokens * part.size);
    std::vector<std::int32_t> host_targets(tokens);
    std::vector<float> host_weight(part.size * width);
    for (std::size_t t = 0; t < tokens; ++t) {
        host_targets[t] = static_cast<std::int32_t>(t * 12 % vocabulary);
        for (std::size_t c = 0; c < part.size; ++c) {
            host_logits[t * part.size + c] = std::sin(static_cast<float>(t * 7 + part.first + c));
        }
    }
    for (std::size_t i = 0; i < host_weight.size(); ++i) {
        host_weight[i] = static_cast<float>(part.first * width + i);
    }
    sk::detail::EngineTable<float> logits(rank, std::span<const float>(host_logits));
    sk::detail::EngineTable<std::int32_t> targets(rank, std::span<const std::int32_t>(host_targets));
    sk::detail::EngineTable<float> weight(rank, std::span<const float>(host_weight));
    sk::detail::EngineTable<float> losses(rank, std::span<const float>(std::vector<float>(tokens)));
    sk::detail::EngineTable<float> embedded(rank, std::span<const float>(std::vector<float>(tokens * width)));
    sk::tp::CrossEntropy<float> cross_entropy(rank, tp, part, tokens);
    const std::span<const std::int32_t> read_targets = targets.span();
    cross_entropy(logits.span(), read_targets, 0.5F, losses.span());
    sk::tp::embed<Kernels>(rank.compute_stream(), read_targets, part, std::span<const float>(weight.span()),
                           embedded.span());
    sk::all_reduce_in_place(tp, sk::ReduceOp::sum, embedded.span(), rank.compute_stream());
    Outcome outcome{std::vector<float>(tokens), std::vector<float>(logits.size()),
                    std::vector<float>(tokens * width)};
    const auto read = [&](const auto& table, std::vector<float>& to) {
        Kernels::copy_out(rank.compute_stream(), std::span<const float>(table.span()), std::span(to));
    };
    read(losses, outcome.losses);
    read(logits, outcome.logits);
    read(embedded, outcome.embedded);
    return outcome;
}

}  // namespace

TEST_CASE("nccl: loss and embedding of a split vocabulary are those of the threads engine") {
    for (const std::size_t tp : {1U, 2U, 4U}) {
        CAPTURE(tp);
        const Mesh mesh(1, tp, 1);
        std::vector<Outcome> expected(tp);
        sk::threads::run(mesh, [&](auto& rank) { expected[rank.rank()] = pass(rank); });
        for (const paced_ranks::Paces paces : paced_ranks::some_paces()) {
            std::vector<Outcome> given(tp);
            CHECK(paced_ranks::run(mesh, paces, {},
                                   [&](auto& rank, const auto&) { given[rank.rank()] = pass(rank); }) == "");
            for (std::size_t r = 0; r < tp; ++r) {
                CHECK(largest_difference(given[r].losses, expected[r].losses) <= 1e-5);
                CHECK(largest_difference(given[r].logits, expected[r].logits) <= 1e-6);
                CHECK(given[r].embedded == expected[r].embedded);
            }
        }
    }
}

}  // namespace tensor_parallel_test
