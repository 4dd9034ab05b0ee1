// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <shardkit/core/element.hpp>

namespace shardkit {

/// A run of elements among those that a norm's launch takes: positions [begin, end) of the pass stand for
/// elements[0 .. end - begin).
template <FloatingElement T>
struct NormPiece {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    const T* elements = nullptr;  ///< the engine's memory
};

/// Bytes that a piece's place among the positions is rounded to.
inline constexpr std::size_t norm_chunk_bytes = 2048;

/// The pieces of `runs`, which lie in an engine's memory and are not read; empty ones are left out. Each begins in a
/// chunk of norm_chunk_bytes of its own, at a position congruent to its address modulo 16 bytes.
template <FloatingElement T>
std::vector<NormPiece<T>> norm_table(std::span<const std::span<const T>> runs) {
    constexpr std::uint64_t chunk = norm_chunk_bytes / sizeof(T);
    constexpr std::size_t widest = 16;
    std::vector<NormPiece<T>> pieces;
    std::uint64_t end = 0;
    for (const std::span<const T> run : runs) {
        if (run.empty()) { continue; }
        const auto shift = reinterpret_cast<std::uintptr_t>(run.data()) % widest / sizeof(T);
        const std::uint64_t begin = (end + chunk - 1) / chunk * chunk + shift;
        end = begin + run.size();
        pieces.push_back({begin, end, run.data()});
    }
    return pieces;
}

}  // namespace shardkit
