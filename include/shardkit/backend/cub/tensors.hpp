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
            if (apart % alignof(AlignedPack<T, lanes>) == 0) {
                for_each_pack(tiling, index, in_piece, Copy<true>{flat, from_table(piece.tensor), piece.begin});
            } else {
                for_each_pack(tiling, index, in_piece, Copy<false>{flat, from_table(piece.tensor), piece.begin});
            }
        });
    }

  private:
    /// Copies the elements of one tensor. `Alike` means that packs of the flat buffer are packs of the tensor.
    template <bool Alike>
    struct Copy {
        T* flat;
        T* tensor;
        std::uint64_t begin;

        template <std::size_t N>
        constexpr AlignedPack<T, N> load(std::uint64_t position) const {
            if constexpr (Way == engine::TensorCopy::unpack) {
                return detail::load<N>(flat + position);
            } else if constexpr (Alike) {
                return detail::load<N>(tensor + (position - begin));
            } else {
                AlignedPack<T, N> pack{};
                for (std::size_t i = 0; i < N; ++i) { pack.lane[i] = tensor[position - begin + i]; }
                return pack;
            }
        }
        template <std::size_t N>
        constexpr void finish(std::uint64_t position, const AlignedPack<T, N>& pack) const {
            if constexpr (Way == engine::TensorCopy::pack) {
                store<N>(pack, flat + position);
            } else if constexpr (Alike) {
                store<N>(pack, tensor + (position - begin));
            } else {
                for (std::size_t i = 0; i < N; ++i) { tensor[position - begin + i] = pack.lane[i]; }
            }
        }
    };
};

}  // namespace shardkit::gpu::detail
