// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>

namespace shardkit::detail {

/// Returns a number of 64 bits as a size: a cast where a size is narrower, and none where it is the same type, which
/// -Wuseless-cast would tell of.
template <class Whole>
constexpr std::size_t to_size(Whole number) noexcept {
    if constexpr (std::is_same_v<Whole, std::size_t>) {
        return number;
    } else {
        return static_cast<std::size_t>(number);
    }
}

}  // namespace shardkit::detail
