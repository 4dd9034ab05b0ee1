// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <shardkit/core/element.hpp>

namespace shardkit {

/// One tensor of a pack or an unpack: positions [begin, end) of the flat buffer stand for its elements, in order.
template <Element T>
struct TensorPiece {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    T* tensor = nullptr;
};

}  // namespace shardkit
