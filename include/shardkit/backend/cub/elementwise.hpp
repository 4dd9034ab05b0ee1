// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <shardkit/backend/cub/span_walk.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/source_location.hpp>

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
        constexpr std::uint64_t sharers = RowTiling::sharers;
        // In 32 bits: a division then takes a quarter of the instructions.
        const auto chunk = static_cast<std::uint32_t>(index / sharers);
        const std::uint32_t row = chunk / row_chunks;
        const Row of_row{from + row * stride, to + row * columns};
        for_each_pack(tile<lanes, vectors>(columns, of_row.from, of_row.to),
                      (chunk - row * row_chunks) * sharers + index % sharers, of_row);
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

/// Adds two elements to a third: total[i] += other[i] + addend[i].
template <FloatingElement Addend, FloatingElement Sum>
struct AccumulatePairPass {
    static constexpr std::size_t lanes = lanes_for<Addend, Sum>;
    static constexpr std::size_t vectors = 2;

    const Addend* addend;
    const Sum* other;
    Sum* total;
    Tiling<lanes, vectors> tiling;

    constexpr void operator()(std::uint64_t index) const { for_each_pack(tiling, index, *this); }

    template <std::size_t N>
    struct Loaded {
        AlignedPack<Addend, N> more;
        AlignedPack<Sum, N> other;
        AlignedPack<Sum, N> sum;
    };
    template <std::size_t N>
    constexpr Loaded<N> load(std::uint64_t position) const {
        return {detail::load<N>(addend + position), detail::load<N>(other + position),
                detail::load<N>(total + position)};
    }
    template <std::size_t N>
    constexpr void finish(std::uint64_t position, Loaded<N> of) const {
        for (std::size_t i = 0; i < N; ++i) { of.sum.lane[i] += of.other.lane[i] + converted<Sum>(of.more.lane[i]); }
        store<N>(of.sum, total + position);
    }
};

/// Scales elements: to[i] *= *factor, in Arithmetic<T>.
template <FloatingElement T>
struct ScalePass {
    using A = Arithmetic<T>;
    static constexpr std::size_t lanes = lanes_for<T>;
    static constexpr std::size_t vectors = 4;

    T* to;
    const double* factor;
    Tiling<lanes, vectors> tiling;

    constexpr void operator()(std::uint64_t index) const {
        for_each_pack(tiling, index, Step{to, static_cast<A>(*factor)});
    }

  private:
    struct Step {
        T* to;
        A by;

        template <std::size_t N>
        constexpr AlignedPack<T, N> load(std::uint64_t position) const {
            return detail::load<N>(to + position);
        }
        template <std::size_t N>
        constexpr void finish(std::uint64_t position, AlignedPack<T, N> pack) const {
            for (std::size_t i = 0; i < N; ++i) { pack.lane[i] = converted<T>(by * converted<A>(pack.lane[i])); }
            store<N>(pack, to + position);
        }
    };
};

}  // namespace shardkit::gpu::detail

// `launch(count, work, kernel)` runs work(i) for each i in [0, count), in any order: DeviceLaunch, or a test's loop.

namespace shardkit::gpu::detail {

/// Sets every element to `value`, in one launch.
/// @post every element of `to` is `value`
template <Element T, class Launch>
void fill(const Launch& launch, std::span<T> to, std::type_identity_t<T> value) {
    using Pass = FillPass<T>;
    const Pass pass{to.data(), value, tile<Pass::lanes, Pass::vectors>(to.size(), to.data())};
    launch(pass.tiling.indices(), pass, "fill");
}

/// Writes to[i] = from[i], rounded once, in one launch.
/// @post to[i] is from[i] rounded to nearest, ties to even (from fp64 to a 16-bit type through fp32)
/// @pre the spans do not overlap
template <FloatingElement From, FloatingElement To, class Launch>
void convert(const Launch& launch, std::span<const From> from, std::span<To> to,
             SourceLocation where = SourceLocation::current()) {
    using Pass = ConvertPass<From, To>;
    require_size("convert", "to", to.size(), from.size(), where);
    const Pass pass{from.data(), to.data(), tile<Pass::lanes, Pass::vectors>(to.size(), from.data(), to.data())};
    launch(pass.tiling.indices(), pass, "convert");
}

/// Packs rows of `columns` elements that lie `stride` apart: to[q * columns + j] = from[q * stride + j], rounded as
/// by `convert`, in one launch.
/// @pre columns > 0, to.size() is a multiple of it, and fewer than 2^32 chunks of 2 KiB; the memories do not overlap
template <FloatingElement From, FloatingElement To, class Launch>
void convert_rows(const Launch& launch, const From* from, std::size_t stride, std::span<To> to, std::size_t columns) {
    using Pass = ConvertRowsPass<From, To>;
    using RowTiling = typename Pass::RowTiling;
    // As many chunks as a row may need that does not begin at the start of a pack.
    const std::uint64_t chunks =
        (columns + Pass::lanes - 1 + RowTiling::chunk_elements - 1) / RowTiling::chunk_elements;
    launch(to.size() / columns * chunks * RowTiling::sharers,
           Pass{from, stride, to.data(), columns, static_cast<std::uint32_t>(chunks)}, "convert_rows");
}

/// Adds total[i] += addend[i] in the arithmetic type, in one launch.
/// @post total[i] is the old total[i] + addend[i], added in Arithmetic<Sum> and rounded once
template <FloatingElement Addend, FloatingElement Sum, class Launch>
void accumulate(const Launch& launch, std::span<const Addend> addend, std::span<Sum> total,
                SourceLocation where = SourceLocation::current()) {
    using Pass = AccumulatePass<Addend, Sum>;
    require_size("accumulate", "total", total.size(), addend.size(), where);
    const Pass pass{addend.data(), total.data(),
                    tile<Pass::lanes, Pass::vectors>(total.size(), addend.data(), total.data())};
    launch(pass.tiling.indices(), pass, "accumulate");
}

/// Adds total[i] += other[i] + addend[i], in one launch.
/// @post total[i] is the old total[i] + (other[i] + addend[i])
template <FloatingElement Addend, FloatingElement Sum, class Launch>
requires(std::same_as<Sum, Arithmetic<Sum>>) void accumulate_pair(const Launch& launch,
                                                                  std::span<const Addend> addend,
                                                                  std::span<const Sum> other, std::span<Sum> total,
                                                                  SourceLocation where = SourceLocation::current()) {
    using Pass = AccumulatePairPass<Addend, Sum>;
    require_size("accumulate_pair", "other", other.size(), addend.size(), where);
    require_size("accumulate_pair", "total", total.size(), addend.size(), where);
    const Pass pass{addend.data(), other.data(), total.data(),
                    tile<Pass::lanes, Pass::vectors>(total.size(), addend.data(), other.data(), total.data())};
    launch(pass.tiling.indices(), pass, "accumulate_pair");
}

/// Multiplies every element by *factor, in one launch.
/// @post to[i] is the old to[i] * *factor, multiplied in Arithmetic<T> and rounded once
template <FloatingElement T, class Launch>
void scale(const Launch& launch, std::span<T> to, const double* factor) {
    using Pass = ScalePass<T>;
    const Pass pass{to.data(), factor, tile<Pass::lanes, Pass::vectors>(to.size(), to.data())};
    launch(pass.tiling.indices(), pass, "scale");
}

}  // namespace shardkit::gpu::detail
