// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace shardkit {

/// How elements of several ranks become one. There is no average: the divisor is applied once, elsewhere.
enum class ReduceOp : std::uint8_t { sum, max, min };

/// The operation as errors and logs name it.
constexpr std::string_view name(ReduceOp op) noexcept {
    return op == ReduceOp::sum ? "sum" : op == ReduceOp::max ? "max" : "min";
}

}  // namespace shardkit
