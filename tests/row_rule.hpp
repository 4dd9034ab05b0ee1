// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <shardkit/muon.hpp>
#include <shardkit/shardkit.hpp>

/// An optimizer's rule that keeps something of each matrix on the rank that owns it.
namespace row_rule {

namespace sk = shardkit;

struct RowOptions {
    double learning_rate = 0.1;
    double weight_decay = 0;
};
inline void validate(const RowOptions& options, sk::SourceLocation where) {
    if (!(options.learning_rate >= 0)) { sk::throw_invalid_argument(where, "Rows: the learning rate is negative"); }
}

template <class A>
struct RowApply {
    A learning_rate;

    template <class V>
    constexpr void operator()(V& parameter, V moved) const {
        parameter = parameter - learning_rate * moved;
    }
};
template <class A>
struct RowUpdate {
    sk::rules::Factor<A> gradient_scale;
    A learning_rate;

    template <class V>
    constexpr void operator()(V& direction, V gradient) const {
        direction = gradient_scale * gradient;
    }
    constexpr RowApply<A> apply(sk::rules::MatrixExtents /*extents*/) const { return {learning_rate}; }
};

/// kept = 0.5 kept + 0.5 gram, unless the step is skipped. By element of the square.
template <class A>
struct Average {
    const std::uint32_t* skip;
    const A* gram;
    A* kept;

    constexpr void operator()(std::uint64_t i) const {
        if (*skip == 0) { kept[i] = (kept[i] + gram[i]) / 2; }
    }
};
/// Each row divided by the root of its own average.
template <class A>
struct DivideRows {
    std::size_t rows, columns;
    const A* kept;
    A* values;

    constexpr void operator()(std::uint64_t i) const {
        const std::size_t row = i / columns;
        const A sum = kept[row * rows + row];
        values[i] = sum > 0 ? values[i] / std::sqrt(sum) : A{0};
    }
};

/// Keeps the mean of G G^T of each matrix, and moves each row by the gradient over the root of its diagonal.
struct RowRule {
    using Options = RowOptions;
    static constexpr std::string_view name = "Rows";
    static constexpr std::array<std::string_view, 0> state_names{};
    struct Progress {
        std::uint64_t steps = 0;
    };
    static constexpr std::size_t state_count(const Options& /*options*/) { return 0; }
    static constexpr void advance(Progress& progress, const Options& /*options*/) { ++progress.steps; }
    template <class A>
    using Update = RowUpdate<A>;
    template <class A>
    static constexpr Update<A> update(const Progress& /*progress*/, const Options& options, double scale) {
        return {sk::rules::Factor<A>(scale), static_cast<A>(options.learning_rate)};
    }

    template <class A>
    static constexpr std::size_t scratch(sk::rules::MatrixExtents extents) {
        return extents.rows * extents.rows;
    }
    static constexpr std::size_t kept(sk::rules::MatrixExtents extents) { return extents.rows * extents.rows; }
    static constexpr std::uint64_t cost(sk::rules::MatrixExtents extents) { return extents.numel() * extents.rows; }
    template <class Products, class A>
    static void transform(const sk::Stream& stream, const Products& products,
                          const sk::rules::WholeMatrix<A, Update<A>>& whole) {
        const auto [rows, columns] = whole.extents;
        A* const gram = whole.scratch.data();
        products.gram(stream, sk::rules::GramProduct<A>{rows, columns, A(1), whole.values.data(), A(0), gram});
        sk::host::AnyKernels::for_each_index(stream, rows * rows, Average<A>{whole.skip, gram, whole.kept.data()});
        sk::host::AnyKernels::for_each_index(stream, rows * columns,
                                             DivideRows<A>{rows, columns, whole.kept.data(), whole.values.data()});
    }
};

}  // namespace row_rule
