// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <shardkit/backend/cub/span_walk.hpp>
#include <shardkit/core/element.hpp>

namespace shardkit::gpu::detail {

/// Fills elements: to[i] = value.
template <Element T>
struct FillPass {
    static constexpr std::size_t lanes = lanes_for<T>;
    static constexpr std::size_t vectors = 4;

    T* to;
    T value;
    Tiling<lanes, vectors> tiling;

    constexpr void operator()(std::uint64_t index) const { for_each_pack(tiling, index, *this); }

    struct Nothing {};
    template <std::size_t N>
    constexpr Nothing load(std::uint64_t /*position*/) const {
        return {};
    }
    template <std::size_t N>
    constexpr void finish(std::uint64_t position, Nothing /*loaded*/) const {
        AlignedPack<T, N> pack{};
        for (std::size_t i = 0; i < N; ++i) { pack.lane[i] = value; }
        store<N>(pack, to + position);
    }
};

/// Converts elements: to[i] = from[i], rounded.
template <FloatingElement From, FloatingElement To>
struct ConvertPass {
    static constexpr std::size_t lanes = lanes_for<From, To>;
    static constexpr std::size_t vectors = 4;

    const From* from;
    To* to;
    Tiling<lanes, vectors> tiling;

    constexpr void operator()(std::uint64_t index) const { for_each_pack(tiling, index, *this); }

    template <std::size_t N>
    constexpr AlignedPack<From, N> load(std::uint64_t position) const {
        return detail::load<N>(from + position);
    }
    template <std::size_t N>
    constexpr void finish(std::uint64_t position, const AlignedPack<From, N>& pack) const {
        store<N>(converted_pack<To>(pack), to + position);
    }
};

/// Packs rows of elements: to[q * columns + j] = from[q * stride + j], rounded. Each row has chunks of its own;
/// threads behind its end do nothing.
template <FloatingElement From, FloatingElement To>
struct ConvertRowsPass {
    static constexpr std::size_t lanes = lanes_for<From, To>;
    static constexpr std::size_t vectors = 4;
    using RowTiling = Tiling<lanes, vectors>;

    const From* from;
    std::uint64_t stride;
    To* to;
    std::uint64_t columns;
    std::uint32_t row_chunks;

    constexpr void operator()(std::uint64_t index) const {
        // In 32 bits: a division then takes a quarter of the instructions.
        const auto chunk = static_cast<std::uint32_t>(index / warp);
        const std::uint32_t row = chunk / row_chunks;
        const Row of_row{from + row * stride, to + row * columns};
        for_each_pack(tile<lanes, vectors>(columns, of_row.from, of_row.to),
                      (chunk - row * row_chunks) * warp + index % warp, of_row);
    }

  private:
    struct Row {
        const From* from;
        To* to;

        template <std::size_t N>
        constexpr AlignedPack<From, N> load(std::uint64_t position) const {
            return detail::load<N>(from + position);
        }
        template <std::size_t N>
        constexpr void finish(std::uint64_t position, const AlignedPack<From, N>& pack) const {
            store<N>(converted_pack<To>(pack), from_table(to) + position);
        }
    };
};

/// Adds elements: total[i] += addend[i], in Arithmetic<Sum>.
template <FloatingElement Addend, FloatingElement Sum>
struct AccumulatePass {
    using A = Arithmetic<Sum>;
    static constexpr std::size_t lanes = lanes_for<Addend, Sum>;
    static constexpr std::size_t vectors = 2;

    const Addend* addend;
    Sum* total;
    Tiling<lanes, vectors> tiling;

    constexpr void operator()(std::uint64_t index) const { for_each_pack(tiling, index, *this); }

    template <std::size_t N>
    struct Loaded {
        AlignedPack<Addend, N> more;
        AlignedPack<Sum, N> sum;
    };
    template <std::size_t N>
    constexpr Loaded<N> load(std::uint64_t position) const {
        return {detail::load<N>(addend + position), detail::load<N>(total + position)};
    }
    template <std::size_t N>
    constexpr void finish(std::uint64_t position, Loaded<N> of) const {
        for (std::size_t i = 0; i < N; ++i) {
            of.sum.lane[i] = converted<Sum>(converted<A>(of.sum.lane[i]) + converted<A>(of.more.lane[i]));
        }
        store<N>(of.sum, total + position);
    }
};

}  // namespace shardkit::gpu::detail
