// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace shardkit::detail {

/// A quotient and its rest.
struct Divided {
    std::uint64_t quotient;
    std::uint64_t rest;
};
/// Returns i / by and i % by. Where 32 bits suffice, the division is one of them, which takes a fraction of the time
/// on processors and on GPUs.
/// @pre by > 0
constexpr Divided divided(std::uint64_t i, std::uint64_t by) noexcept {
    if (((i | by) >> 32U) != 0) { return {i / by, i % by}; }
    const auto narrow_i = static_cast<std::uint32_t>(i);
    const auto narrow_by = static_cast<std::uint32_t>(by);
    return {narrow_i / narrow_by, narrow_i % narrow_by};
}

}  // namespace shardkit::detail
