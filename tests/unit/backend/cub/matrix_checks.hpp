// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <shardkit/layout/index_range.hpp>
#include <shardkit/muon/matrix_exchange.hpp>
#include <shardkit/muon/newton_schulz.hpp>
#include <shardkit/param/tensor_part.hpp>
#include <shardkit/param/tensor_shape.hpp>

#include "machine.hpp"

// What Muon's kernels make of a matrix, by index: the norm's bits are those of a host that runs the works whole, and
// what is moved is what two plain loops move.

namespace shardkit::test {

template <class A>
std::vector<A> matrix_values(std::size_t n) {
    std::vector<A> values;
    for (std::size_t i = 0; i < n; ++i) {
        values.push_back(static_cast<A>(std::sin(static_cast<double>((i + 3) * (i + 7) % 1009))));
    }
    return values;
}

/// A work on tiles, by index on the machine.
template <class A, class M, class Work>
void run_in_tiles(M& machine, std::size_t rows, std::size_t columns, const Work& work) {
    using Tile = detail::MatrixTile<A>;
    const detail::EachElement<Work> each{Tile::across(rows), Tile::across(columns), work};
    M::Kernels::for_each_index(machine.stream(), std::uint64_t{each.rows} * each.columns, each);
}

template <class A, class M>
void check_norm(M& machine, std::size_t numel, std::size_t offset) {
    machine.clear();
    using Squares = detail::SumSquares<A>;
    constexpr std::size_t folded = detail::NewtonSchulzScratch<A>::folded_sums;
    const std::vector<A> values = matrix_values<A>(numel);
    const std::size_t count = Squares::sums_of(numel);
    const auto matrix = array(machine, values, offset);
    const auto sums = array(machine, std::vector<double>(count, -1));
    const auto fewer = array(machine, std::vector<double>(folded, -1));
    const auto epsilon = array(machine, std::vector<double>{1e-7});
    std::vector<double> host(count);
    std::vector<double> host_fewer(folded);
    const double host_epsilon = 1e-7;

    const bool packs = detail::begins_a_pack(matrix.data());
    CHECK(packs == (offset % detail::lanes_for<A> == 0));
    M::Kernels::for_each_index(machine.stream(), count, Squares{matrix.data(), numel, sums.data(), count, packs});
    Squares{values.data(), numel, host.data(), count, false}();
    CHECK(sums.values() == host);

    double* last = sums.data();
    std::size_t left = count;
    double* host_last = host.data();
    if (count > folded) {
        const detail::FoldSums fold{sums.data(), count, fewer.data(), folded};
        M::Kernels::for_each_index(machine.stream(), folded, fold);
        for (std::size_t i = 0; i < folded; ++i) {
            for (std::size_t at = i; at < count; at += folded) { host_fewer[i] += host[at]; }
        }
        CHECK(fewer.values() == host_fewer);
        last = fewer.data();
        left = folded;
        host_last = host_fewer.data();
    }
    M::Kernels::run_once(machine.stream(), detail::FrobeniusNorm{last, left, epsilon.data()});
    detail::FrobeniusNorm{host_last, left, &host_epsilon}();
    const double norm = (count > folded ? fewer : sums).values()[0];
    CHECK(norm == host_last[0]);
    long double exact = 0;
    for (const A value : values) { exact += static_cast<long double>(value) * static_cast<long double>(value); }
    CHECK(norm == doctest::Approx(static_cast<double>(std::sqrt(exact))).epsilon(1e-14));

    const auto divided = array(machine, std::vector<A>(numel, A{9}), offset);
    M::Kernels::for_each_index(machine.stream(), detail::DivideMatrix<A>::vectors(numel),
                               detail::DivideMatrix<A>{matrix.data(), divided.data(), numel, last, packs});
    std::vector<A> expected = values;
    for (A& value : expected) { value = value / static_cast<A>(norm); }
    CHECK(divided.values() == expected);
}

template <class A, class M>
void check_tiles(M& machine, std::size_t rows, std::size_t columns, std::size_t offset) {
    machine.clear();
    constexpr std::size_t side = detail::MatrixTile<A>::side;
    const std::vector<A> values = matrix_values<A>(rows * columns);
    const auto from = array(machine, values, offset);
    const auto to = array(machine, std::vector<A>(values.size()), offset);
    const auto by = array(machine, std::vector<double>{3});
    const bool packs = offset == 0 && rows % side == 0 && columns % side == 0;
    for (const double* divisor : {static_cast<const double*>(nullptr), static_cast<const double*>(by.data())}) {
        run_in_tiles<A>(machine, rows, columns,
                        detail::TurnMatrix<A>{from.data(), to.data(), rows, columns, divisor, packs});
        std::vector<A> turned(values.size());
        for (std::size_t r = 0; r < rows; ++r) {
            for (std::size_t c = 0; c < columns; ++c) {
                turned[r * columns + c] = values[c * rows + r] / A(divisor == nullptr ? 1 : 3);
            }
        }
        CHECK(to.values() == turned);
    }

    const std::vector<A> of_square = matrix_values<A>(rows * rows);
    const auto square = array(machine, of_square, offset);
    const std::vector<A> before(of_square.size(), A{-5});
    const auto copy = array(machine, before, offset);
    std::vector<A> whole = of_square;
    std::vector<A> lower = before;
    for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t c = 0; c <= r; ++c) {
            whole[c * rows + r] = of_square[r * rows + c];
            lower[r * rows + c] = of_square[r * rows + c];
        }
    }
    const bool square_packs = offset == 0 && rows % side == 0;
    run_in_tiles<A>(machine, rows, rows, detail::MirrorMatrix<A>{square.data(), rows, copy.data(), square_packs});
    CHECK(square.values() == whole);
    CHECK(copy.values() == lower);
    run_in_tiles<A>(machine, rows, rows, detail::MirrorMatrix<A>{square.data(), rows, nullptr, square_packs});
    CHECK(square.values() == whole);
}

/// Pieces of parts, whose runs in the matrix are whole vectors or not, to the matrix and back.
template <class A, class M>
void check_pieces(M& machine, const TensorShape& shape, std::size_t dimension, std::size_t parts, std::size_t cut) {
    machine.clear();
    const auto matrix = array(machine, std::vector<A>(shape.numel()));
    std::vector<A> expected(shape.numel());
    const std::vector<A> values = matrix_values<A>(shape.numel());
    for (std::size_t p = 0; p < parts; ++p) {
        const TensorPart part(shape, dimension, parts, p);
        const std::size_t at = cut < part.numel() ? cut : part.numel();
        for (const IndexRange elements : {IndexRange{0, at}, IndexRange{at, part.numel()}}) {
            std::vector<A> own;
            for (std::size_t i = elements.begin; i < elements.end; ++i) {
                own.push_back(values[part.whole_index(i)]);
                expected[part.whole_index(i)] = own.back();
            }
            const auto piece = array(machine, own, elements.begin);
            const detail::MovePiece<A, false> there(piece.data(), matrix.data(), part, elements);
            M::Kernels::for_each_index(machine.stream(), there.vectors(), there);
            const auto again = array(machine, std::vector<A>(own.size()), elements.begin + p % 2);
            const detail::MovePiece<A, true> back(again.data(), matrix.data(), part, elements);
            M::Kernels::for_each_index(machine.stream(), back.vectors(), back);
            CHECK(again.values() == own);
        }
    }
    CHECK(matrix.values() == expected);
}

template <class A, class M>
void check_matrix_works(M& machine) {
    // One sum, many, so many that they are folded, and more vectors than the most sums have at least.
    for (const std::size_t numel : {1U, 7U, 64U, 1027U, 8192U, 20'011U}) {
        for (const std::size_t offset : {0U, 1U}) {
            CAPTURE(numel);
            CAPTURE(offset);
            check_norm<A>(machine, numel, offset);
        }
    }
    for (const std::size_t rows : {1U, 8U, 13U, 64U}) {
        for (const std::size_t columns : {1U, 16U, 67U}) {
            for (const std::size_t offset : {0U, 1U}) {
                CAPTURE(rows);
                CAPTURE(columns);
                check_tiles<A>(machine, rows, columns, offset);
            }
        }
    }
    for (const std::size_t cut : {0U, 1U, 8U, 19U, 1000U}) {
        CAPTURE(cut);
        check_pieces<A>(machine, TensorShape{2, {12, 16}}, 0, 3, cut);
        check_pieces<A>(machine, TensorShape{2, {12, 16}}, 1, 2, cut);
        check_pieces<A>(machine, TensorShape{2, {6, 9}}, 1, 3, cut);
        check_pieces<A>(machine, TensorShape{2, {5, 5}}, 0, 1, cut);
    }
}

}  // namespace shardkit::test
