// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>

#include <shardkit/core/element.hpp>

#include "matmul.hpp"
#include "place.hpp"

namespace train_gpt {

/// Loops of the calling thread, and the products of a CBLAS; all is done when a call returns.
struct HostPlace {
    template <class T>
    using Storage = shardkit::Arithmetic<T>;
    using CountsAttention = train_gpt::CountsAttention;
    static constexpr std::size_t column_parts = 1;
    static constexpr std::size_t tokens_ahead = 0;
    static constexpr std::size_t heads_at_once(std::size_t /*heads*/) { return 1; }

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
    /// result = scale * a b, or result += scale * a b, for each of the repeats.
    /// Shapes: a [m, k], b [k, n], result [m, n] as stored.
    template <std::floating_point A>
    static void multiply(Matrix<const A> a, Matrix<const A> b, Matrix<A> result, Into into, A scale = A{1},
                         Repeats repeats = {}) {
        for (std::size_t i = 0; i < repeats.count; ++i) {
            matmul<A>(a, b, result, into, scale);
            a.data += repeats.left;
            b.data += repeats.right;
            result.data += repeats.result;
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
