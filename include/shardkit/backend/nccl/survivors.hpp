// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <shardkit/core/error.hpp>

namespace shardkit::nccl {

class World;

/// Lists the ranks of a World that are left when some are lost. Who is lost is for the user to find out and to tell
/// every rank that is left: NCCL says that a rank is gone, and not which.
struct Survivors {
    World& world;
    std::span<const std::size_t> lost;  ///< ranks of `world`, in any order

    /// Returns which of the survivors rank `rank` of `ranks` is.
    /// @throws std::invalid_argument for a list that names no rank, this one, one twice or one that is not there
    std::size_t place_of(std::size_t rank, std::size_t ranks, SourceLocation where) const {
        if (lost.empty()) {
            throw_invalid_argument(where, "nccl::Survivors: no rank is lost, expected at least one");
        }
        std::vector<bool> is_lost(ranks);
        std::size_t before = 0;
        for (const std::size_t one : lost) {
            const char* const wrong = one >= ranks   ? "there is none"
                                      : one == rank  ? "it is this one"
                                      : is_lost[one] ? "it is named twice"
                                                     : nullptr;
            if (wrong != nullptr) {
                throw_invalid_argument(where, "nccl::Survivors: lost rank ", one, " of ", ranks, ": ", wrong,
                                       ", expected other ranks of the World, once each");
            }
            is_lost[one] = true;
            before += one < rank ? 1 : 0;
        }
        return rank - before;
    }
};

}  // namespace shardkit::nccl
