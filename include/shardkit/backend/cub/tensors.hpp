// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <shardkit/backend/cub/span_walk.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/memory/tensor_table.hpp>

namespace shardkit::gpu {

/// Which way a PackPass copies: tensors into the flat buffer, or back.
enum class PackDirection : std::uint8_t { pack, unpack };

/// One vector of the flat buffer, from or to the tensors that its positions stand for; other positions are left
/// alone. A tensor whose alignment differs from the flat buffer's is copied element by element.
template <Element T, PackDirection Direction>
struct PackPass {
    static constexpr std::size_t lanes = lanes_for<T>;

    T* flat;
    const TensorPiece<T>* pieces;
    std::size_t piece_count;
    Tiling<lanes> tiling;

    constexpr void operator()(std::uint64_t vector) const {
        for_each_pack_in(tiling, vector, pieces, piece_count, *this);
    }

    template <std::size_t N>
    constexpr void at(std::uint64_t position, const TensorPiece<T>& piece) const {
        T* const in_flat = flat + position;
        T* const in_tensor = piece.tensor + (position - piece.begin);
        const bool as_pack = reinterpret_cast<std::uintptr_t>(in_tensor) % alignof(AlignedPack<T, N>) == 0;
        T* const to = Direction == PackDirection::pack ? in_flat : in_tensor;
        const T* const from = Direction == PackDirection::pack ? in_tensor : in_flat;
        if (as_pack) {
            store<N>(load<N>(from), to);
        } else {
            for (std::size_t i = 0; i < N; ++i) { to[i] = from[i]; }
        }
    }
};

}  // namespace shardkit::gpu

// `launch(count, work, kernel)` runs work(i) for each i in [0, count), in any order: DeviceLaunch, or a test's loop.

namespace shardkit::gpu {

/// Copies every tensor of `table` into its place in `flat` (pack), or out of it (unpack); padding is left alone.
/// Cost:  one launch for all tensors, whatever their number.
/// @pre   `table` is tensor_table's, in the engine's memory; no tensor overlaps `flat` or another one
template <PackDirection Direction, Element T, class Launch>
void copy_tensors(const Launch& launch, std::span<const TensorPiece<T>> table, std::span<T> flat) {
    using Pass = PackPass<T, Direction>;
    if (table.empty()) { return; }
    const Pass pass{flat.data(), table.data(), table.size(), tile<Pass::lanes>(flat.size(), flat.data())};
    launch(pass.tiling.vectors(), pass, Direction == PackDirection::pack ? "pack" : "unpack");
}

}  // namespace shardkit::gpu
