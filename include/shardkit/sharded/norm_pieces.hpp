// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <shardkit/core/element.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/memory/stored_elements.hpp>

namespace shardkit::engine {

/// One run of contiguous elements in a norm: positions [begin, end) of the pass over all elements are `elements`, in
/// order.
template <FloatingElement T>
struct NormPiece {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    const T* elements = nullptr;
};

/// The bytes of positions that a warp takes at a time. Each piece begins in a new chunk.
inline constexpr std::size_t norm_chunk_bytes = 2048;

}  // namespace shardkit::engine

namespace shardkit::detail {

/// A NormPiece whose type is that of its run.
struct NormRun {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    const void* elements = nullptr;
};

/// Lists the pieces of `runs`, which have elements of one type.
inline List<NormRun> list_norm_pieces(const List<StoredElements>& runs) {
    constexpr std::size_t alignment = 16;
    List<NormRun> table;
    std::uint64_t at = 0;
    for (const StoredElements& run : runs) {
        if (run.empty()) { continue; }
        const std::size_t size = size_of(run.type());
        const std::uint64_t chunk = engine::norm_chunk_bytes / size;
        const std::uint64_t begin = at + reinterpret_cast<std::uintptr_t>(run.data()) % alignment / size;
        table.push_back({begin, begin + run.size(), run.data()});
        at = (begin + run.size() + chunk - 1) / chunk * chunk;
    }
    return table;
}

}  // namespace shardkit::detail

namespace shardkit::engine {

/// Returns the table for Kernels::norm_partial over `runs`, which lie in the engine's memory and are not read. Empty
/// runs are left out. It is made once and copied into the engine's memory by Kernels::copy_in; every step can use it.
/// @post A piece begins, in elements, at a multiple of norm_chunk_bytes plus its address modulo 16 bytes.
///       Pieces are disjoint and in the order of `runs`
template <FloatingElement T>
std::vector<NormPiece<T>> norm_table(std::span<const std::span<const T>> runs) {
    shardkit::detail::List<shardkit::detail::StoredElements> all;
    for (const std::span<const T> run : runs) {
        all.push_back({const_cast<T*>(run.data()), run.size(), element_type_of<T>});
    }
    std::vector<NormPiece<T>> table;
    for (const auto& [begin, end, elements] : shardkit::detail::list_norm_pieces(all)) {
        table.push_back({begin, end, static_cast<const T*>(elements)});
    }
    return table;
}

}  // namespace shardkit::engine
