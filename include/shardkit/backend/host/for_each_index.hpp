// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace shardkit::host::detail {

/// Calls step(0) ... step(count - 1). The inner loop's fixed length is what lets compilers vectorise it at -O2.
template <class Step>
inline void for_each_index(std::size_t count, Step step) noexcept {
    constexpr std::size_t piece = 64;
    const std::size_t whole = count - count % piece;
    for (std::size_t i = 0; i < whole; i += piece) {
        for (std::size_t j = 0; j < piece; ++j) { step(i + j); }
    }
    for (std::size_t i = whole; i < count; ++i) { step(i); }
}

}  // namespace shardkit::host::detail
