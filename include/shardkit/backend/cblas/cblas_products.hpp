// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include <cblas.h>

#include <shardkit/optim/matrix_products.hpp>

namespace shardkit {

namespace detail {

/// An extent as CBLAS takes it. @throws std::length_error when it is too large
inline int cblas_extent(std::size_t extent) {
    if (extent > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
        throw std::length_error("CblasProducts: an extent is larger than CBLAS can count");
    }
    return static_cast<int>(extent);
}

}  // namespace detail

/// The products of a CBLAS on the host: OpenBLAS, BLIS, MKL or another with a <cblas.h>, which the program links.
/// Ranks get the same bits when the library multiplies alike on all of them: give it one number of threads, and the
/// same processors.
struct CblasProducts {
    template <class Stream, std::floating_point A>
    static void multiply(const Stream& stream, const rules::MatrixProduct<A>& p) {
        const int rows = detail::cblas_extent(p.rows);
        const int columns = detail::cblas_extent(p.columns);
        const int inner = detail::cblas_extent(p.inner);
        stream.submit([=] {
            if constexpr (std::is_same_v<A, float>) {
                cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, columns, inner, p.alpha, p.left, inner,
                            p.right, columns, p.beta, p.out, columns);
            } else {
                cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, columns, inner, p.alpha, p.left, inner,
                            p.right, columns, p.beta, p.out, columns);
            }
        });
    }
    template <class Stream, std::floating_point A>
    static void gram(const Stream& stream, const rules::GramProduct<A>& p) {
        const int rows = detail::cblas_extent(p.rows);
        const int columns = detail::cblas_extent(p.columns);
        stream.submit([=] {
            if constexpr (std::is_same_v<A, float>) {
                cblas_ssyrk(CblasRowMajor, CblasLower, CblasNoTrans, rows, columns, p.alpha, p.matrix, columns,
                            p.beta, p.out, rows);
            } else {
                cblas_dsyrk(CblasRowMajor, CblasLower, CblasNoTrans, rows, columns, p.alpha, p.matrix, columns,
                            p.beta, p.out, rows);
            }
        });
    }
};

}  // namespace shardkit
