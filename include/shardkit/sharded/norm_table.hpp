// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <shardkit/core/element.hpp>

namespace shardkit {

/// One run of the elements that a norm counts: positions [begin, end) of the norm's pass stand for `elements`, in
/// order.
template <FloatingElement T>
struct NormPiece {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    const T* elements = nullptr;
};

/// Bytes of positions that a warp takes at a time; a piece begins in a chunk of its own.
inline constexpr std::size_t norm_chunk_bytes = 2048;

/// The table for Kernels::norm_partial over `runs`, which lie in the engine's memory and are not read; empty ones are
/// left out. Made once; copied into the engine's memory by Kernels::copy_in it serves every step.
/// @post begin of a piece is its elements' address modulo 16 bytes, behind a multiple of norm_chunk_bytes; in
/// elements.
///       Pieces are in the order of `runs`, and disjoint
template <FloatingElement T>
std::vector<NormPiece<T>> norm_table(std::span<const std::span<const T>> runs) {
    constexpr std::uint64_t chunk = norm_chunk_bytes / sizeof(T);
    constexpr std::size_t alignment = 16;
    std::vector<NormPiece<T>> table;
    std::uint64_t at = 0;
    for (const std::span<const T> run : runs) {
        if (run.empty()) { continue; }
        const std::uint64_t begin = at + reinterpret_cast<std::uintptr_t>(run.data()) % alignment / sizeof(T);
        table.push_back({begin, begin + run.size(), run.data()});
        at = (begin + run.size() + chunk - 1) / chunk * chunk;
    }
    return table;
}

}  // namespace shardkit
