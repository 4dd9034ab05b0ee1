// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>

namespace shardkit::host::detail {

/// Copies `count` elements between ranges that do not overlap; null pointers are fine when there are none.
template <class T>
void copy_elements(const T* from, T* to, std::size_t count) noexcept {
    if (count > 0) { std::memcpy(static_cast<void*>(to), from, count * sizeof(T)); }
}

}  // namespace shardkit::host::detail
