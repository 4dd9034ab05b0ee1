// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cassert>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include <cblas.h>

#include "../../common/openblas.hpp"
#include "matrix.hpp"
#include "place.hpp"

namespace train_gpt {

/// What is made while it lives counts as attention.
class CountsAttention {
  public:
    CountsAttention() noexcept : before_(multiply_adds().all) {}
    CountsAttention(const CountsAttention&) = delete;
    CountsAttention& operator=(const CountsAttention&) = delete;
    ~CountsAttention() { multiply_adds().attention += multiply_adds().all - before_; }

  private:
    std::uint64_t before_;
};

/// result = scale * a b, or result += scale * a b.
/// Shapes: a [m, k], b [k, n], result [m, n] as stored.
/// The same operands give the same bits on every call with the same number of BLAS threads and the same kernel.
template <std::floating_point A>
void matmul(Matrix<const A> a, Matrix<const A> b, Matrix<A> result, Into into, A scale = A{1}) {
    assert(a.rows == result.rows && a.columns == b.rows && b.columns == result.columns);
    assert(result.order == Order::as_stored);
    const auto extent = [](std::size_t n) { return static_cast<blasint>(n); };
    const auto side = [](Order order) { return order == Order::transposed ? CblasTrans : CblasNoTrans; };
    const A beta = into == Into::add ? A{1} : A{0};
    program::blas();  // its kernel is chosen before the first product
    if constexpr (std::same_as<A, double>) {
        cblas_dgemm(CblasRowMajor, side(a.order), side(b.order), extent(a.rows), extent(b.columns), extent(a.columns),
                    scale, a.data, extent(a.stride), b.data, extent(b.stride), beta, result.data,
                    extent(result.stride));
    } else {
        static_assert(std::same_as<A, float>, "matmul: products are made in float or double");
        cblas_sgemm(CblasRowMajor, side(a.order), side(b.order), extent(a.rows), extent(b.columns), extent(a.columns),
                    scale, a.data, extent(a.stride), b.data, extent(b.stride), beta, result.data,
                    extent(result.stride));
    }
    multiply_adds().all += static_cast<std::uint64_t>(a.rows) * a.columns * b.columns;
}

/// Loops of the calling thread, and the products of a CBLAS; all is done when a call returns.
struct HostPlace : HostLayout {
    using CountsAttention = train_gpt::CountsAttention;

    template <class Work>
    static void each(std::size_t n, Work work) {
        for (std::size_t i = 0; i < n; ++i) { work(i); }
    }
    template <class Work>
    static void rows(std::size_t n, Work work) {
        for (std::size_t r = 0; r < n; ++r) { work(WholeRow{}, r); }
    }
    template <class Work>
    static void columns(std::size_t n, Work work) {
        constexpr std::size_t most = Work::columns_at_once;
        for (std::size_t c = 0; c < n; c += std::min(most, n - c)) {
            work(Columns<most>{c, std::min(most, n - c)}, 0);
        }
    }
    /// result = scale * a b, or result += scale * a b, for each of a batch.
    /// Shapes: a [m, k], b [k, n], result [m, n] as stored.
    template <std::floating_point A>
    static void multiply(Matrix<const A> a, Matrix<const A> b, Matrix<A> result, Into into, A scale = A{1},
                         std::size_t count = 1) {
        for (; count > 0; --count) {
            matmul<A>(a, b, result, into, scale);
            a.data += a.next;
            b.data += b.next;
            result.data += result.next;
        }
    }
    template <class... X>
    static constexpr bool multiply_biased(const X&... /*unused*/) {
        return false;
    }
    template <class... X>
    static constexpr bool multiply_by_gelu_slope(const X&... /*unused*/) {
        return false;
    }
};

}  // namespace train_gpt
