// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::engine {

/// Which way tensors are copied: into a flat buffer, or back.
enum class TensorCopy : std::uint8_t { pack, unpack };

/// One tensor of such a copy: positions [begin, end) of the flat buffer are its elements, in order.
template <Element T>
struct TensorPiece {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    T* tensor = nullptr;
};

/// Returns the pieces in the order that Kernels::copy_tensors needs, without empty ones. It is made once and copied
/// into the engine's memory by Kernels::copy_in; every step can use it.
/// @throws std::invalid_argument when a piece ends before it begins or behind the flat buffer, has no tensor, or
///         overlaps another one
template <Element T>
std::vector<TensorPiece<T>> tensor_table(std::span<const TensorPiece<T>> pieces, std::size_t flat_size,
                                         SourceLocation where = SourceLocation::current()) {
    std::vector<TensorPiece<T>> table;
    for (const TensorPiece<T>& piece : pieces) {
        require_argument(piece.begin <= piece.end && piece.end <= flat_size, where, "tensor_table: piece [",
                         piece.begin, ", ", piece.end, "), expected a range inside [0, ", flat_size, ")");
        if (piece.begin == piece.end) { continue; }
        require_argument(piece.tensor != nullptr, where, "tensor_table: piece [", piece.begin, ", ", piece.end,
                         ") has no tensor, expected memory of the engine");
        table.push_back(piece);
    }
    std::sort(table.begin(), table.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    for (std::size_t i = 1; i < table.size(); ++i) {
        require_argument(table[i - 1].end <= table[i].begin, where, "tensor_table: pieces [", table[i - 1].begin,
                         ", ", table[i - 1].end, ") and [", table[i].begin, ", ", table[i].end,
                         ") overlap, expected disjoint pieces");
    }
    return table;
}

}  // namespace shardkit::engine
