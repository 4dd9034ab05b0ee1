// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

#include <shardkit/core/checked.hpp>
#include <shardkit/optim/matrix_products.hpp>

namespace shardkit::detail SHARDKIT_FACE {
/// `gram`: the right factor is transposed, and only elements on and below the diagonal are computed.
void multiply_on_host(const rules::MatrixProduct<float>& product, bool gram);
void multiply_on_host(const rules::MatrixProduct<double>& product, bool gram);
}  // namespace shardkit::detail SHARDKIT_FACE

namespace shardkit SHARDKIT_FACE {

/// The library's own products on a host, in one thread: for tests, small models and hosts without a BLAS.
/// Cost:    about half of the processor's additions and multiplications; gram half of multiply's work
/// Order:   sums in blocks of 256 terms, in order: the same bits everywhere
struct HostProducts {
    template <class Stream, std::floating_point A>
    static void multiply(const Stream& stream, const rules::MatrixProduct<A>& product) {
        stream.submit([product] { detail::multiply_on_host(product, false); });
    }
    template <class Stream, std::floating_point A>
    static void gram(const Stream& stream, const rules::GramProduct<A>& p) {
        stream.submit(
            [product = rules::MatrixProduct<A>{p.rows, p.columns, p.rows, p.alpha, p.matrix, p.matrix, p.beta,
                                               p.out}] { detail::multiply_on_host(product, true); });
    }
};

}  // namespace SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
#include <shardkit/muon/tiled_products.hpp>
#endif
