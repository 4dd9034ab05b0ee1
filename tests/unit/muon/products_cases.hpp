// SPDX-License-Identifier: Apache-2.0
// What every library of matrix products must compute, against sums written out.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/optim/matrix_products.hpp>

namespace products_cases {

namespace sk = shardkit;

template <class A>
std::vector<A> values(std::size_t n, std::size_t seed) {
    std::vector<A> all;
    for (std::size_t i = 0; i < n; ++i) {
        all.push_back(static_cast<A>(static_cast<int>((i * 37 + seed * 11) % 19) - 9));
    }
    return all;
}

/// Small whole numbers, so that every order of additions gives the same sum. `in_memory(values)` returns a pointer to
/// them in the engine's memory, `read(pointer, n)` the values there once the stream's work is done.
template <class A, class Products, class Stream, class InMemory, class Read>
void check_products(const Products& products, const Stream& stream, const InMemory& in_memory, const Read& read) {
    constexpr A nan = std::numeric_limits<A>::quiet_NaN();
    struct Extents {
        std::size_t rows, inner, columns;
    };
    for (const Extents e : {Extents{1, 1, 1}, {1, 9, 1}, {7, 3, 17}, {6, 257, 8}, {13, 520, 31}}) {
        for (const A beta : {A{0}, A{3}}) {
            CAPTURE(e.rows);
            CAPTURE(e.inner);
            CAPTURE(beta);
            const std::vector<A> left = values<A>(e.rows * e.inner, 1);
            const std::vector<A> right = values<A>(e.inner * e.columns, 2);
            // A result that is not added to is not read.
            const std::vector<A> before =
                beta == 0 ? std::vector<A>(e.rows * e.columns, nan) : values<A>(e.rows * e.columns, 3);
            A* const out = in_memory(before);
            products.multiply(stream, sk::rules::MatrixProduct<A>{e.rows, e.inner, e.columns, A{2}, in_memory(left),
                                                                  in_memory(right), beta, out});
            const std::vector<A> product = read(out, before.size());
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < e.rows; ++i) {
                for (std::size_t j = 0; j < e.columns; ++j) {
                    A sum = beta == 0 ? A{0} : beta * before[i * e.columns + j];
                    for (std::size_t k = 0; k < e.inner; ++k) {
                        sum += 2 * left[i * e.inner + k] * right[k * e.columns + j];
                    }
                    wrong += product[i * e.columns + j] == sum ? 0U : 1U;
                }
            }
            CHECK(wrong == 0);

            std::vector<A> square = values<A>(e.rows * e.rows, 4);
            for (std::size_t i = 0; i < e.rows; ++i) {
                for (std::size_t j = 0; j < e.rows; ++j) {
                    if (beta == 0 || j > i) { square[i * e.rows + j] = nan; }
                }
            }
            A* const to = in_memory(square);
            products.gram(stream, sk::rules::GramProduct<A>{e.rows, e.inner, A{2}, in_memory(left), beta, to});
            const std::vector<A> gram = read(to, square.size());
            wrong = 0;
            for (std::size_t i = 0; i < e.rows; ++i) {
                for (std::size_t j = 0; j < e.rows; ++j) {
                    const A got = gram[i * e.rows + j];
                    A sum = beta == 0 ? A{0} : beta * square[i * e.rows + j];
                    for (std::size_t k = 0; k < e.inner; ++k) {
                        sum += 2 * left[i * e.inner + k] * left[j * e.inner + k];
                    }
                    wrong += j > i || got == sum ? 0U : 1U;
                }
            }
            CHECK(wrong == 0);
        }
    }
}

/// The same in the host's memory.
template <class A, class Products, class Stream>
void check_host_products(const Products& products, const Stream& stream) {
    std::vector<std::vector<A>> kept;
    kept.reserve(1000);
    check_products<A>(
        products, stream,
        [&](const std::vector<A>& given) {
            REQUIRE(kept.size() < kept.capacity());
            kept.push_back(given);
            return kept.back().data();
        },
        [&](const A* from, std::size_t n) {
            stream.synchronize();
            return std::vector<A>(from, from + n);
        });
}

}  // namespace products_cases
