// SPDX-License-Identifier: Apache-2.0
// What a trainer has anyway: linear layers, here as plain loops over the memory that they are given.
#pragma once

#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include <shardkit/context_parallel/attention_shape.hpp>

namespace plain {

using Values = std::vector<double>;
using View = std::span<const double>;

/// y = x w^T, for x [tokens, in] and w [out, in].
inline Values linear(View x, View w, std::size_t in) {
    const std::size_t out = w.size() / in;
    Values y(x.size() / in * out);
    for (std::size_t i = 0; i < y.size(); ++i) {
        y[i] = std::inner_product(&x[i / out * in], &x[i / out * in] + in, &w[i % out * in], 0.0);
    }
    return y;
}

/// Adds to dw, returns dx.
inline Values linear_backward(View x, View w, View dy, std::span<double> dw, std::size_t in) {
    const std::size_t out = w.size() / in;
    Values dx(x.size());
    for (std::size_t i = 0; i < dy.size(); ++i) {
        const std::size_t x_row = i / out * in;
        const std::size_t w_row = i % out * in;
        for (std::size_t c = 0; c < in; ++c) {
            dx[x_row + c] += dy[i] * w[w_row + c];
            dw[w_row + c] += dy[i] * x[x_row + c];
        }
    }
    return dx;
}

inline void add(View addend, Values& sum) {
    for (std::size_t i = 0; i < sum.size(); ++i) { sum[i] += addend[i]; }
}

/// Linear layers have [token][head][part][column], attention has [part][sequence][head][token][column]; the parts are
/// query, key and value, or one.
enum class Order : unsigned char { by_token, by_head };
inline Values reorder(Order to, View from, const shardkit::cp::AttentionShape& shape) {
    const std::size_t parts = from.size() / shape.queries();
    Values reordered(from.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
        const std::size_t column = i % shape.head_width;
        const std::size_t part = i / shape.head_width % parts;
        const std::size_t head = i / shape.head_width / parts % shape.heads;
        const std::size_t token = i / shape.head_width / parts / shape.heads;
        const std::size_t block = (part * shape.batch + token / shape.tokens) * shape.heads + head;
        const std::size_t j = (block * shape.tokens + token % shape.tokens) * shape.head_width + column;
        (to == Order::by_head ? reordered[j] : reordered[i]) = to == Order::by_head ? from[i] : from[j];
    }
    return reordered;
}

}  // namespace plain
