// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "largest_difference.hpp"
#include "paced_ranks.hpp"
#include "small_trainer.hpp"

/// small_trainer on every rank of a mesh, by engine.
namespace small_trainer {

using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;

template <class T>
std::vector<Outcome> on_threads(const Mesh& mesh, const sk::DynamicPolicy& policy, const Training& training) {
    std::vector<Outcome> outcomes(mesh.grid().size());
    sk::threads::run(
        mesh,
        [&](auto& rank) {
            outcomes[rank.rank()] =
                train<T>(rank, policy, training, [](const auto& stream, const auto& work) { stream.submit(work); });
        },
        sk::RankOptions{.in_flight = training.in_flight});
    return outcomes;
}

using paced_ranks::all_paces;
using paced_ranks::Paces;

/// On the stand-in, which each rank is told `before` of first. Empty `error` when every rank ended well, and the
/// stand-in saw nothing that would break on a GPU.
template <class T>
std::vector<Outcome> on_nccl(
    const Mesh& mesh, const sk::DynamicPolicy& policy, const Training& training, Paces paces, std::string& error,
    const std::function<void()>& before = [] {}, const sk::nccl::Options& of_world = {}) {
    std::vector<Outcome> outcomes(mesh.grid().size());
    error = paced_ranks::run(
        mesh, paces, {.in_flight = training.in_flight},
        [&](auto& rank, const auto&) {
            before();
            outcomes[rank.rank()] = train<T>(rank, policy, training, paced_ranks::submit);
        },
        of_world);
    return outcomes;
}

/// To a few roundings, as NCCL adds in another order: parameters to `bound`. A norm that overflowed may be NaN in
/// both.
inline bool close(const Outcome& a, const Outcome& b, double bound) {
    return largest_difference(a.parameters, b.parameters) <= bound && a.loss_scale == b.loss_scale &&
           std::ranges::equal(a.norms, b.norms, [&](double x, double y) { return agrees(x, y, bound); });
}

/// Where the NCCL engine first gives something else than `expected`, at which paces, and what went wrong there; empty
/// where it does not.
template <class T>
std::string difference(const Mesh& mesh, const sk::DynamicPolicy& policy, const Training& training,
                       const std::vector<Outcome>& expected,
                       std::span<const Paces> tried = paced_ranks::paces_in_turn()) {
    const auto word = [](standin::Pace pace) { return pace == standin::Pace::lazy ? "late" : "early"; };
    for (const Paces paces : tried) {
        std::string error;
        const auto given = on_nccl<T>(mesh, policy, training, paces, error);
        for (std::size_t r = 0; r < given.size(); ++r) {
            if (error.empty() && close(given[r], expected[r], sizeof(T) == 2 ? 1e-2 : 1e-4)) { continue; }
            return sk::detail::concat("compute ", word(paces.compute), ", communication ", word(paces.communication),
                                      ", reduction ", word(paces.reduction), ": rank ", r, " differs",
                                      error.empty() ? "" : ": ", error);
        }
    }
    return {};
}

}  // namespace small_trainer
