// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace shardkit {

/// The operation that combines the elements of several ranks. There is no average: the divisor is applied once,
/// elsewhere.
enum class ReduceOp : std::uint8_t { sum, max, min };

/// Returns the operation's name in errors and logs.
constexpr std::string_view name(ReduceOp op) noexcept {
    return op == ReduceOp::sum ? "sum" : op == ReduceOp::max ? "max" : "min";
}

}  // namespace shardkit
