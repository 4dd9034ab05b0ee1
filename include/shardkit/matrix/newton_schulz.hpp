// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <shardkit/core/error.hpp>
#include <shardkit/core/lane_math.hpp>
#include <shardkit/matrix/products.hpp>
#include <shardkit/rank/launches.hpp>

namespace shardkit {

namespace detail {

/// X is the matrix with no more rows than columns: the given one, or its transpose.
template <std::floating_point A>
struct TurnMatrix {
    const A* from;
    A* to;
    std::size_t rows, columns;  // of `to`

    constexpr void operator()(std::size_t row, std::size_t column) const {
        to[row * columns + column] = from[column * rows + row];
    }
};
template <std::floating_point A>
struct CopyMatrix {
    const A* from;
    A* to;

    constexpr void operator()(std::uint64_t i) const { to[i] = from[i]; }
};
/// The squares of one chunk's elements, in double.
template <std::floating_point A>
struct SumSquares {
    static constexpr std::size_t chunk = 1024;
    const A* matrix;
    std::size_t numel;
    double* sums;

    constexpr void operator()(std::uint64_t i) const {
        double sum = 0;
        const std::size_t end = i * chunk + chunk < numel ? i * chunk + chunk : numel;
        for (std::size_t at = i * chunk; at < end; ++at) {
            const auto element = static_cast<double>(matrix[at]);
            sum += element * element;
        }
        sums[i] = sum;
    }
};
/// sums[0] becomes the number that the matrix is divided by.
struct FrobeniusNorm {
    double* sums;
    std::size_t chunks;
    const double* least;

    constexpr void operator()() const {
        for (std::size_t i = 1; i < chunks; ++i) { sums[0] += sums[i]; }
        const double norm = rules::square_root(sums[0]);
        sums[0] = norm < *least ? *least : norm;  // a NaN stays one
    }
};
template <std::floating_point A>
struct DivideMatrix {
    A* matrix;
    const double* by;

    constexpr void operator()(std::uint64_t i) const { matrix[i] = matrix[i] / static_cast<A>(*by); }
};
/// Copies what is below the diagonal to above it, and with the diagonal to `copy`.
template <std::floating_point A>
struct MirrorMatrix {
    A* matrix;
    std::size_t rows;
    A* copy;  // null: none

    constexpr void operator()(std::size_t row, std::size_t column) const {
        if (column > row) { return; }
        const A element = matrix[row * rows + column];
        if (column < row) { matrix[column * rows + row] = element; }
        if (copy != nullptr) { copy[row * rows + column] = element; }
    }
};

}  // namespace detail

}  // namespace shardkit

namespace shardkit::rules {

/// Returns the elements that newton_schulz works in beside the matrix: the matrix once more, and two squares of its
/// shorter side.
template <std::floating_point A>
constexpr std::size_t newton_schulz_scratch(MatrixExtents extents) noexcept {
    const std::size_t chunks = (extents.numel() + detail::SumSquares<A>::chunk - 1) / detail::SumSquares<A>::chunk;
    return extents.numel() + std::max(2 * extents.shorter() * extents.shorter(), sizeof(double) * chunks / sizeof(A));
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
/// Order:   stream-ordered. The same matrix gives the same bits on every rank, with any number of ranks.
/// Cost:    orthogonalisation_cost additions and multiplications, and ten passes over the matrix
/// @post    a zero matrix is zero; with a NaN or an infinity, all elements are NaN
/// @throws  std::invalid_argument when the sizes of the spans are others
/// Source:  Jordan et al., Muon, 2024; torch.optim.Muon, in the arithmetic A instead of bf16
template <class Engine, std::floating_point A, MatrixProducts<typename Engine::Stream, A> Products>
void newton_schulz(const typename Engine::Stream& stream, const Products& products, MatrixExtents extents,
                   const double* epsilon, std::span<A> matrix, std::span<A> scratch,
                   SourceLocation where = SourceLocation::current()) {
    if (matrix.size() != extents.numel() || scratch.size() < newton_schulz_scratch<A>(extents)) {
        throw_invalid_argument(where, "newton_schulz: a matrix of ", matrix.size(), " elements and ", scratch.size(),
                               " to work in, expected ", extents.numel(), " and ", newton_schulz_scratch<A>(extents));
    }
    const std::size_t rows = extents.shorter();
    const std::size_t columns = extents.longer();
    const std::size_t numel = extents.numel();
    if (numel == 0) { return; }
    const bool turned = extents.rows > extents.columns;
    A* const gram = scratch.data();
    A* const polynomial = gram + rows * rows;
    A* x = scratch.data() + (newton_schulz_scratch<A>(extents) - numel);
    A* next = matrix.data();

    const auto each = [&](std::size_t n, const auto& work) { detail::run_each<Engine>(stream, n, work); };
    const auto mirror = [&](A* square, A* copy) {
        detail::run_each_element<Engine>(stream, rows, rows, detail::MirrorMatrix<A>{square, rows, copy});
    };
    if (turned) {
        detail::run_each_element<Engine>(stream, rows, columns, detail::TurnMatrix<A>{next, x, rows, columns});
    } else {
        each(numel, detail::CopyMatrix<A>{next, x});
    }
    // The sums lie where the squares are written later.
    auto* const sums = static_cast<double*>(static_cast<void*>(gram));
    const std::size_t chunks = (numel + detail::SumSquares<A>::chunk - 1) / detail::SumSquares<A>::chunk;
    each(chunks, detail::SumSquares<A>{x, numel, sums});
    Engine::Kernels::run_once(stream, detail::FrobeniusNorm{sums, chunks, epsilon});
    each(numel, detail::DivideMatrix<A>{x, sums});

    constexpr int steps = 5;  // an odd number: the result lies in `matrix`
    for (int step = 0; step < steps; ++step) {
        products.gram(stream, GramProduct<A>{rows, columns, A(1), x, A(0), gram});
        mirror(gram, polynomial);
        products.gram(stream, GramProduct<A>{rows, rows, A(2.0315), gram, A(-4.7750), polynomial});
        mirror(polynomial, nullptr);
        each(numel, detail::CopyMatrix<A>{x, next});
        products.multiply(stream, MatrixProduct<A>{rows, rows, columns, A(1), polynomial, x, A(3.4445), next});
        std::swap(x, next);
    }
    if (turned) {
        detail::run_each_element<Engine>(stream, columns, rows, detail::TurnMatrix<A>{x, next, columns, rows});
        each(numel, detail::CopyMatrix<A>{next, x});
    }
}

}  // namespace shardkit::rules
