// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <shardkit/comm/reduce_op.hpp>

namespace benchmarks {

/// One collective as one rank sees it, and the numbers that go into it.
/// Values:  element i of world rank w is a pseudo-random whole number that depends on w and i, below 251, or below 8
///          where values are summed: these, and sums over up to 32 ranks, are exact in every element type.
struct Shape {
    std::vector<std::size_t> world_ranks;  ///< of the ranks of this sub-mesh
    std::size_t rank = 0;                  ///< this rank's number in the sub-mesh
    std::size_t piece = 0;                 ///< elements; of one rank where the verb has pieces per rank
    std::size_t root = 0;
    shardkit::ReduceOp op = shardkit::ReduceOp::sum;

    std::size_t ranks() const noexcept { return world_ranks.size(); }
    std::size_t next() const noexcept { return (rank + 1) % ranks(); }
    std::size_t previous() const noexcept { return (rank + ranks() - 1) % ranks(); }

    /// What rank q of this sub-mesh puts in at `index` of a verb that copies.
    std::uint64_t value(std::size_t q, std::size_t index) const noexcept {
        return number(world_ranks[q], index, 251);
    }
    /// The same of a verb that reduces.
    std::uint64_t addend(std::size_t q, std::size_t index) const noexcept {
        return number(world_ranks[q], index, op == shardkit::ReduceOp::sum ? 8 : 251);
    }
    /// All ranks' addends as one.
    std::uint64_t reduced(std::size_t index) const noexcept {
        std::uint64_t result = addend(0, index);
        for (std::size_t q = 1; q < ranks(); ++q) {
            const std::uint64_t other = addend(q, index);
            result = op == shardkit::ReduceOp::sum   ? result + other
                     : op == shardkit::ReduceOp::max ? std::max(result, other)
                                                     : std::min(result, other);
        }
        return result;
    }

  private:
    /// The upper half of a product by an odd number (Knuth, The Art of Computer Programming 3, 6.4), below `range`.
    static std::uint64_t number(std::uint64_t world_rank, std::uint64_t index, std::uint64_t range) noexcept {
        std::uint64_t mixed = (index + 1) * 0x9e3779b97f4a7c15U + (world_rank + 1) * 0xd1b54a32d192ed03U;
        mixed = (mixed ^ (mixed >> 29U)) * 0xbf58476d1ce4e5b9U;
        return ((mixed >> 32U) * range) >> 32U;
    }
};

}  // namespace benchmarks
