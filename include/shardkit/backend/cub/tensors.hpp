// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <shardkit/backend/cub/span_walk.hpp>
#include <shardkit/backend/host/tensor_table.hpp>
#include <shardkit/core/element.hpp>

namespace shardkit::gpu::detail {

/// Copies vectors of the flat buffer from or to the tensors at its positions; other positions are not touched. If a
/// tensor's alignment differs from the flat buffer's, its elements are read or written one by one.
template <Element T, engine::TensorCopy Way>
struct PackPass {
    static constexpr std::size_t lanes = lanes_for<T>;
    static constexpr std::size_t vectors = 4;

    T* flat;
    const engine::TensorPiece<T>* pieces;
    std::size_t piece_count;
    Tiling<lanes, vectors> tiling;

    constexpr void operator()(std::uint64_t index) const {
        for_each_range_in(tiling.chunk(index), pieces, piece_count, [&](const engine::TensorPiece<T>& piece) {
            const IndexRange in_piece{piece.begin, piece.end};
            const auto apart =
                reinterpret_cast<std::uintptr_t>(piece.tensor) - reinterpret_cast<std::uintptr_t>(flat + piece.begin);
            auto of_piece = tiling;
            of_piece.aligned = tiling.aligned && apart % alignof(AlignedPack<T, lanes>) == 0;
            for_each_pack(of_piece, index, in_piece, Copy{flat, from_table(piece.tensor), piece.begin});
        });
    }

  private:
    /// Copies the elements of one tensor.
    struct Copy {
        T* flat;
        T* tensor;
        std::uint64_t begin;

        template <std::size_t N>
        constexpr AlignedPack<T, N> load(std::uint64_t position) const {
            return detail::load<N>(Way == engine::TensorCopy::unpack ? flat + position : tensor + (position - begin));
        }
        template <std::size_t N>
        constexpr void finish(std::uint64_t position, const AlignedPack<T, N>& pack) const {
            store<N>(pack, Way == engine::TensorCopy::pack ? flat + position : tensor + (position - begin));
        }
    };
};

}  // namespace shardkit::gpu::detail
