// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>

namespace shardkit {

/// out = alpha * left * right + beta * out, of row-major matrices without gaps: left [rows, inner],
/// right [inner, columns], out [rows, columns]. `out` is not read where beta is 0, and overlaps neither factor.
template <std::floating_point A>
struct MatrixProduct {
    std::size_t rows, inner, columns;
    A alpha;
    const A* left;
    const A* right;
    A beta;
    A* out;
};

/// out = alpha * matrix * transpose(matrix) + beta * out, matrix [rows, columns], out [rows, rows]. Only the elements
/// on and below the diagonal of `out` are read and written: the rest of a symmetric matrix is the same again, so this
/// is half the work of a product. `out` is not read where beta is 0, and does not overlap `matrix`.
template <std::floating_point A>
struct GramProduct {
    std::size_t rows, columns;
    A alpha;
    const A* matrix;
    A beta;
    A* out;
};

/// A library of matrix products for memory of a Stream's engine, in arithmetic A. HostProducts is the one that needs
/// no other library; CblasProducts and CublasProducts adapt those.
///     multiply(stream, product)
///     gram(stream, product)
/// Order:   stream-ordered. The same product gives the same bits on every rank.
template <class P, class Stream, class A>
concept MatrixProducts = requires(const P& products, const Stream& stream, const MatrixProduct<A>& product,
                                  const GramProduct<A>& gram) {
    products.multiply(stream, product);
    products.gram(stream, gram);
};

}  // namespace shardkit
