// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <utility>

#include <shardkit/core/aligned_pack.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/lane_math.hpp>
#include <shardkit/optim/matrix_products.hpp>
#include <shardkit/spi/launches.hpp>

namespace shardkit {

namespace detail {

/// Whether what lies at `at` is moved in packs.
template <class A>
constexpr bool begins_a_pack(const A* at) noexcept {
    return elements_past_pack<lanes_for<A>>(at) == 0;
}

/// The squares of a matrix's elements, in double, as so many sums that each is a short one: vector v of the elements,
/// its squares added in pairs, is added to sum v % count, in the order of v.
template <std::floating_point A>
struct SumSquares {
    static constexpr std::size_t lanes = lanes_for<A>;
    static constexpr std::size_t most_sums = 65'536;
    static constexpr std::size_t least_vectors = 8;  // of a sum

    const A* matrix;
    std::size_t numel;
    double* sums;
    std::size_t count;
    bool packs;

    static constexpr std::size_t sums_of(std::size_t numel) noexcept {
        const std::size_t count = (numel + lanes * least_vectors - 1) / (lanes * least_vectors);
        return count < most_sums ? count : most_sums;
    }
    constexpr void operator()(std::uint64_t i) const {
        double sum = 0;
        SHARDKIT_UNROLL(4)
        for (std::uint64_t v = i; v * lanes < numel; v += count) { sum += of_vector(v); }
        sums[i] = sum;
    }
    constexpr void operator()() const {
        for (std::size_t i = 0; i < count; ++i) { sums[i] = 0; }
        for (std::size_t v = 0; v * lanes < numel;) {
            for (std::size_t i = 0; i < count && v * lanes < numel; ++i, ++v) { sums[i] += of_vector(v); }
        }
    }

  private:
    constexpr double of_vector(std::uint64_t v) const {
        const A* const from = matrix + v * lanes;
        AlignedPack<A, lanes> elements{};
        if (packs && (v + 1) * lanes <= numel) {
            elements = load<lanes>(from);
        } else {
            for (std::size_t l = 0; l < lanes && v * lanes + l < numel; ++l) { elements.lane[l] = from[l]; }
        }
        double squares[lanes]{};
        for (std::size_t l = 0; l < lanes; ++l) {
            const auto element = static_cast<double>(elements.lane[l]);
            squares[l] = element * element;
        }
        for (std::size_t half = lanes / 2; half > 0; half /= 2) {
            for (std::size_t l = 0; l < half; ++l) { squares[l] += squares[l + half]; }
        }
        return squares[0];
    }
};
/// Sum i becomes that of the sums i, i + `folded`, i + 2 folded and so on, in this order.
struct FoldSums {
    const double* sums;
    std::size_t count;
    double* to;
    std::size_t folded;

    constexpr void operator()(std::uint64_t i) const {
        double sum = 0;
        SHARDKIT_UNROLL(8)
        for (std::uint64_t at = i; at < count; at += folded) { sum += sums[at]; }
        to[i] = sum;
    }
};
/// sums[0] becomes the number that the matrix is divided by: the root of the sums, added in order.
struct FrobeniusNorm {
    double* sums;
    std::size_t count;
    const double* least;

    constexpr void operator()() const {
        constexpr std::size_t together = 16;  // loaded before any is added
        double sum = 0;
        for (std::size_t begin = 0; begin < count; begin += together) {
            double loaded[together]{};
            for (std::size_t i = 0; i < together; ++i) { loaded[i] = begin + i < count ? sums[begin + i] : 0.0; }
            for (const double each : loaded) { sum += each; }
        }
        const double norm = rules::square_root(sum);
        sums[0] = norm < *least ? *least : norm;  // a NaN stays one
    }
};
/// Divides a vector of a matrix by a number.
template <std::floating_point A>
struct DivideMatrix {
    static constexpr std::size_t lanes = lanes_for<A>;

    const A* from;
    A* to;
    std::size_t numel;
    const double* by;
    bool packs;

    static constexpr std::size_t vectors(std::size_t numel) noexcept { return (numel + lanes - 1) / lanes; }
    constexpr void operator()(std::uint64_t i) const {
        const auto divisor = static_cast<A>(*by);
        const std::uint64_t at = i * lanes;
        if (packs && at + lanes <= numel) {
            auto elements = load<lanes>(from + at);
            for (A& element : elements.lane) { element = element / divisor; }
            store(elements, to + at);
        } else {
            SHARDKIT_UNROLL(1)
            for (std::uint64_t e = at; e < at + lanes && e < numel; ++e) { to[e] = from[e] / divisor; }
        }
    }
};

/// A square of a matrix, of as many rows as a pack has elements.
template <class A>
struct MatrixTile {
    static constexpr std::size_t side = lanes_for<A>;
    AlignedPack<A, side> rows[side];

    static constexpr std::size_t across(std::size_t extent) noexcept { return (extent + side - 1) / side; }
    static constexpr MatrixTile read(const A* from, std::size_t stride) {
        MatrixTile tile{};
        for (std::size_t r = 0; r < side; ++r) { tile.rows[r] = load<side>(from + r * stride); }
        return tile;
    }
    constexpr void write(A* to, std::size_t stride) const {
        for (std::size_t r = 0; r < side; ++r) { store(rows[r], from_table(to + r * stride)); }
    }
    constexpr MatrixTile turned() const {
        MatrixTile tile{};
        for (std::size_t r = 0; r < side; ++r) {
            for (std::size_t c = 0; c < side; ++c) { tile.rows[r].lane[c] = rows[c].lane[r]; }
        }
        return tile;
    }
};
/// Writes a tile of the transpose of a matrix, divided by a number.
template <std::floating_point A>
struct TurnMatrix {
    using Tile = MatrixTile<A>;

    const A* from;
    A* to;
    std::size_t rows, columns;  // of `to`
    const double* by;           // null: as it is
    bool packs;

    constexpr void operator()(std::size_t tile_row, std::size_t tile_column) const {
        const A divisor = by == nullptr ? A{1} : static_cast<A>(*by);
        const std::size_t top = tile_row * Tile::side;
        const std::size_t left = tile_column * Tile::side;
        if (packs && top + Tile::side <= rows && left + Tile::side <= columns) {
            Tile tile = Tile::read(from + left * rows + top, rows).turned();
            for (auto& row : tile.rows) {
                for (A& element : row.lane) { element = element / divisor; }
            }
            tile.write(to + top * columns + left, columns);
            return;
        }
        SHARDKIT_UNROLL(1)
        for (std::size_t row = top; row < top + Tile::side && row < rows; ++row) {
            SHARDKIT_UNROLL(1)
            for (std::size_t column = left; column < left + Tile::side && column < columns; ++column) {
                to[row * columns + column] = from[column * rows + row] / divisor;
            }
        }
    }
};
/// Copies a tile of what is below the diagonal to above it, and with the diagonal to `copy`.
template <std::floating_point A>
struct MirrorMatrix {
    using Tile = MatrixTile<A>;

    A* matrix;
    std::size_t rows;
    A* copy;  // null: none
    bool packs;

    constexpr void operator()(std::size_t tile_row, std::size_t tile_column) const {
        if (tile_column > tile_row) { return; }
        const std::size_t top = tile_row * Tile::side;
        const std::size_t left = tile_column * Tile::side;
        if (packs && tile_column < tile_row && top + Tile::side <= rows) {
            const Tile tile = Tile::read(matrix + top * rows + left, rows);
            tile.turned().write(matrix + left * rows + top, rows);
            if (copy != nullptr) { tile.write(copy + top * rows + left, rows); }
            return;
        }
        SHARDKIT_UNROLL(1)
        for (std::size_t row = top; row < top + Tile::side && row < rows; ++row) {
            SHARDKIT_UNROLL(1)
            for (std::size_t column = left; column < left + Tile::side && column <= row; ++column) {
                const A element = matrix[row * rows + column];
                if (column < row) { matrix[column * rows + row] = element; }
                if (copy != nullptr) { copy[row * rows + column] = element; }
            }
        }
    }
};

/// Where newton_schulz puts what it works in, in elements of A: each begins a pack.
template <std::floating_point A>
struct NewtonSchulzScratch {
    static constexpr std::size_t folded_sums = 256;

    std::size_t square;  ///< of each of two squares; the sums lie where they are written later
    std::size_t sums;
    std::size_t matrix;  ///< where the matrix lies once more

    constexpr explicit NewtonSchulzScratch(rules::MatrixExtents extents) noexcept
        : square(in_packs(extents.shorter() * extents.shorter())),
          sums(SumSquares<A>::sums_of(extents.numel())),
          matrix(in_packs(std::max(2 * square, (sums + (folds() ? folded_sums : 0)) * sizeof(double) / sizeof(A)))) {}
    constexpr bool folds() const noexcept { return sums > folded_sums; }

  private:
    static constexpr std::size_t in_packs(std::size_t n) noexcept {
        return (n + lanes_for<A> - 1) / lanes_for<A> * lanes_for<A>;
    }
};

}  // namespace detail

}  // namespace shardkit

namespace shardkit::rules {

/// Returns the elements that newton_schulz works in beside the matrix: the matrix once more, and two squares of its
/// shorter side.
template <std::floating_point A>
constexpr std::size_t newton_schulz_scratch(MatrixExtents extents) noexcept {
    return detail::NewtonSchulzScratch<A>(extents).matrix + extents.numel();
}

/// Returns the additions and multiplications of newton_schulz's products, for the shorter side m and the longer n:
/// five times m m n of X X^T, m m m of G G and 2 m m n of the last one, where the first two compute half of their
/// result.
constexpr std::uint64_t orthogonalisation_cost(MatrixExtents extents) noexcept {
    const std::uint64_t m = extents.shorter();
    return 5 * m * m * (3 * std::uint64_t{extents.longer()} + m);
}

/// Makes the singular values of a matrix nearly one, and leaves its singular vectors: five steps of a quintic
/// iteration that end at singular values of about 0.7 to 1.2.
///     X = matrix / max(|matrix|_F, *epsilon), transposed where it has more rows than columns
///     five times: G = X X^T; X = 3.4445 X + (-4.7750 G + 2.0315 G G) X
/// Shapes:  `matrix` row-major, in place; `scratch` of newton_schulz_scratch elements, aligned for double. `epsilon`:
///          the engine's memory.
/// Order:   stream-ordered. The same matrix gives the same bits on every rank, with any number of ranks. The norm's
///          squares are added in double, in an order that only the matrix's size determines: SumSquares, FoldSums and
///          FrobeniusNorm say which.
/// Cost:    orthogonalisation_cost additions and multiplications, and nine passes over the matrix, in accesses of 16
///          bytes where both extents are multiples of as many elements
/// @post    a zero matrix is zero; with a NaN or an infinity, all elements are NaN
/// @throws  std::invalid_argument when the sizes of the spans are others
/// Source:  Jordan et al., Muon, 2024; torch.optim.Muon, in the arithmetic A instead of bf16
template <std::floating_point A, MatrixProducts<Stream, A> Products>
void newton_schulz(const Stream& stream, const Products& products, MatrixExtents extents, const double* epsilon,
                   std::span<A> matrix, std::span<A> scratch, SourceLocation where = SourceLocation::current()) {
    require_argument(matrix.size() == extents.numel() && scratch.size() >= newton_schulz_scratch<A>(extents), where,
                     "newton_schulz: a matrix of ", matrix.size(), " elements and ", scratch.size(),
                     " to work in, expected ", extents.numel(), " and ", newton_schulz_scratch<A>(extents));
    const std::size_t rows = extents.shorter();
    const std::size_t columns = extents.longer();
    const std::size_t numel = extents.numel();
    if (numel == 0) { return; }
    const bool turned = extents.rows > extents.columns;
    const detail::NewtonSchulzScratch<A> places(extents);
    A* const gram = scratch.data();
    A* const polynomial = gram + places.square;
    A* x = scratch.data() + places.matrix;
    A* next = matrix.data();

    using Tile = detail::MatrixTile<A>;
    const auto in_tiles = [&](std::size_t of_rows, std::size_t of_columns, const auto& work) {
        detail::run_each_element(stream, Tile::across(of_rows), Tile::across(of_columns), work);
    };
    const bool packs = detail::begins_a_pack(x) && detail::begins_a_pack(next);
    const bool square_packs = detail::begins_a_pack(gram) && rows % Tile::side == 0;
    const bool turn_packs = packs && rows % Tile::side == 0 && columns % Tile::side == 0;
    const auto mirror = [&](A* square, A* copy) {
        in_tiles(rows, rows, detail::MirrorMatrix<A>{square, rows, copy, square_packs});
    };
    const auto copy = [&](const A* from, A* to) {
        host::AnyKernels::convert(stream, std::span<const A>(from, numel), std::span<A>(to, numel));
    };

    auto* sums = static_cast<double*>(static_cast<void*>(gram));
    std::size_t left = places.sums;
    detail::run_each(stream, left, detail::SumSquares<A>{next, numel, sums, left, packs});
    if (places.folds()) {
        detail::run_each(stream, places.folded_sums, detail::FoldSums{sums, left, sums + left, places.folded_sums});
        sums += left;
        left = places.folded_sums;
    }
    host::AnyKernels::run_once(stream, detail::FrobeniusNorm{sums, left, epsilon});
    if (turned) {
        in_tiles(rows, columns, detail::TurnMatrix<A>{next, x, rows, columns, sums, turn_packs});
    } else {
        detail::run_each(stream, detail::DivideMatrix<A>::vectors(numel),
                         detail::DivideMatrix<A>{next, x, numel, sums, packs});
    }

    constexpr int steps = 5;  // an odd number: the result lies in `matrix`
    for (int step = 0; step < steps; ++step) {
        products.gram(stream, GramProduct<A>{rows, columns, A(1), x, A(0), gram});
        mirror(gram, polynomial);
        products.gram(stream, GramProduct<A>{rows, rows, A(2.0315), gram, A(-4.7750), polynomial});
        mirror(polynomial, nullptr);
        copy(x, next);
        products.multiply(stream, MatrixProduct<A>{rows, rows, columns, A(1), polynomial, x, A(3.4445), next});
        std::swap(x, next);
    }
    if (turned) {
        in_tiles(columns, rows, detail::TurnMatrix<A>{x, next, columns, rows, nullptr, turn_packs});
        copy(next, x);
    }
}

/// The kernels of newton_schulz that are its own: a std::tuple of works.
template <std::floating_point A>
using NewtonSchulzWorks =
    std::tuple<detail::SumSquares<A>, detail::FoldSums, detail::FrobeniusNorm, detail::DivideMatrix<A>,
               detail::EachElement<detail::TurnMatrix<A>>, detail::EachElement<detail::MirrorMatrix<A>>>;

}  // namespace shardkit::rules
