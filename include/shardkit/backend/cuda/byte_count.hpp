// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string_view>

#include <shardkit/core/error.hpp>

namespace shardkit::gpu::detail {

/// Returns the bytes of `size` elements of `element_bytes`, for an allocation of `owner`.
/// @throws std::length_error that names both numbers when they exceed the address space
inline std::size_t byte_count(std::string_view owner, std::size_t size, std::size_t element_bytes,
                              SourceLocation where) {
    if (size > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / element_bytes) {
        throw std::length_error(shardkit::detail::concat(owner, ": ", size, " elements of ", element_bytes,
                                                         " bytes exceed the address space (", where.file, ":",
                                                         where.line, ")"));
    }
    return size * element_bytes;
}

}  // namespace shardkit::gpu::detail
