// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit {

/// The operation that combines the elements of several ranks. There is no average: the divisor is applied once,
/// elsewhere. A `tree_sum` adds neighbours, then pairs of neighbours: ((r0 + r1) + (r2 + r3)), whatever the engine.
/// So the sums of a part of the ranks, a power of two of neighbours, are what the whole adds up. It takes a power of
/// two of ranks.
enum class ReduceOp : std::uint8_t { sum, max, min, tree_sum };

/// Returns the operation's name in errors and logs.
constexpr std::string_view name(ReduceOp op) noexcept {
    constexpr std::string_view names[] = {"sum", "max", "min", "tree_sum"};
    return names[static_cast<std::size_t>(op)];
}

namespace detail {
constexpr bool adds(ReduceOp op) noexcept { return op == ReduceOp::sum || op == ReduceOp::tree_sum; }

/// An operation that is no tree_sum: sums along trees are not compiled for a call that is given one. Norms are in
/// every program, and their trees would be 10 KB of it.
class TreelessOp {
  public:
    constexpr explicit TreelessOp(ReduceOp op) : op_(op) {
        if (op == ReduceOp::tree_sum) {
            throw_invalid_argument({}, "a tree_sum, expected an operation without a tree");
        }
    }
    constexpr operator ReduceOp() const noexcept { return op_; }

  private:
    ReduceOp op_;
};
}  // namespace detail

}  // namespace shardkit
