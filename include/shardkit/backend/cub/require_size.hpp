// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string_view>

#include <shardkit/detail/concat.hpp>

namespace shardkit::gpu {

/// Refuses spans of a kernel that differ in size.
/// @throws std::invalid_argument naming kernel and span unless given == expected
inline void require_size(std::string_view kernel, std::string_view span, std::size_t given, std::size_t expected) {
    if (given != expected) {
        throw std::invalid_argument(shardkit::detail::concat("gpu::Kernels::", kernel, ": ", span, " has ", given,
                                                             " elements, expected ", expected));
    }
}

}  // namespace shardkit::gpu
