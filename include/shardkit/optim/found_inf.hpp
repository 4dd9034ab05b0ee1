// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <shardkit/optim/norm_partial.hpp>

namespace shardkit {

/// Whether any gradient element of the step, on any rank that shares it, was infinite or NaN.
enum class FoundInf : std::uint8_t { no, yes };

/// The verdict of a partial that was summed over all ranks.
constexpr FoundInf found_inf(const NormPartial& total) noexcept {
    return total.nonfinite > 0 ? FoundInf::yes : FoundInf::no;
}

}  // namespace shardkit
