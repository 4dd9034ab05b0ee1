// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/expert_parallel/assignment.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/spi/launches.hpp>

namespace shardkit::detail {

/// As one of the workers of a row, writes every so-manyth element of it: that of its token, times the choice's weight
/// if there are weights.
template <class T, class A>
struct WriteRow {
    const std::uint32_t* choice_of;
    std::size_t top;
    std::size_t width;
    std::size_t workers;
    const T* tokens;
    const A* weights;  ///< of the choices; null: 1
    T* rows;

    constexpr void operator()(std::size_t i) const {
        const std::size_t row = i / workers;
        const std::uint32_t choice = choice_of[row];
        T* const to = rows + row * width;
        if (choice == ep::no_row) {
            for (std::size_t j = i % workers; j < width; j += workers) { to[j] = T{}; }
            return;
        }
        const T* const token = tokens + choice / top * width;
        if (weights == nullptr) {
            for (std::size_t j = i % workers; j < width; j += workers) { to[j] = token[j]; }
            return;
        }
        const A weight = weights[choice];
        for (std::size_t j = i % workers; j < width; j += workers) {
            to[j] = static_cast<T>(static_cast<A>(token[j]) * weight);
        }
    }
};
/// Likewise, makes elements of a token of its rows, in the order of its choices.
template <class T, class A>
struct SumRows {
    const std::uint32_t* row_of;
    std::size_t top;
    std::size_t width;
    std::size_t workers;
    const T* rows;
    const A* weights;
    T* tokens;

    constexpr void operator()(std::size_t i) const {
        const std::size_t token = i / workers;
        for (std::size_t j = i % workers; j < width; j += workers) {
            A sum{0};
            for (std::size_t choice = token * top; choice < (token + 1) * top; ++choice) {
                if (row_of[choice] == ep::no_row) { continue; }
                const auto element = static_cast<A>(rows[row_of[choice] * width + j]);
                sum += weights == nullptr ? element : element * weights[choice];
            }
            tokens[token * width + j] = static_cast<T>(sum);
        }
    }
};
/// Makes the gradient of one choice's weight.
template <class T, class A>
struct WeightGradient {
    const std::uint32_t* row_of;
    std::size_t top;
    std::size_t width;
    const T* rows;
    const T* d_tokens;
    A* d_weights;

    constexpr void operator()(std::size_t choice) const {
        A sum{0};
        for (std::size_t i = 0; row_of[choice] != ep::no_row && i < width; ++i) {
            sum +=
                static_cast<A>(rows[row_of[choice] * width + i]) * static_cast<A>(d_tokens[choice / top * width + i]);
        }
        d_weights[choice] = sum;
    }
};

inline void require_rows(const char* verb, std::size_t choices, std::size_t top, std::size_t width,
                         std::size_t tokens, std::size_t weights, SourceLocation where) {
    if (top > 0 && choices % top == 0 && tokens == choices / top * width && (weights == 0 || weights == choices)) {
        return;
    }
    throw_invalid_argument(where, "ep::", verb, ": ", tokens, " elements of tokens and ", weights, " weights for ",
                           choices, " choices, ", top, " of each token, expected ", width,
                           " elements of each token and a weight of each choice or none");
}

}  // namespace shardkit::detail

namespace shardkit::ep {

/// Writes a row for each choice that is sent: its token, times its weight if weights are given. Rows of padding are
/// zeros. The backward pass of it is sum_rows, and that of sum_rows is this.
/// Shapes:  choice_of [rows]; tokens [n, width], with `top` choices each; weights [n * top] or empty; rows [rows,
///          width]. All in the engine's memory.
/// Order:   on the compute stream; local work.
/// @throws  std::invalid_argument when the sizes disagree
template <FloatingElement T, class A = Arithmetic<T>>
void write_rows(Rank& rank, std::span<const std::uint32_t> choice_of, std::size_t top, std::size_t width,
                std::span<const T> tokens, std::span<const A> weights, std::span<T> rows,
                SourceLocation where = SourceLocation::current()) {
    require_argument(width != 0 && tokens.size() % width == 0 && rows.size() == choice_of.size() * width, where,
                     "ep::write_rows: ", rows.size(), " elements of ", choice_of.size(), " rows and ", tokens.size(),
                     " of tokens, expected rows of ", width);
    shardkit::detail::require_rows("write_rows", tokens.size() / width * top, top, width, tokens.size(),
                                   weights.size(), where);
    const auto stream = rank.compute_stream();
    const std::size_t workers = shardkit::detail::row_workers<host::AnyKernels>(stream);
    host::AnyKernels::for_each_index(
        stream, choice_of.size() * workers,
        shardkit::detail::WriteRow<T, A>{choice_of.data(), top, width, workers, tokens.data(),
                                         weights.empty() ? nullptr : weights.data(), rows.data()});
}

/// Writes each token: the sum of its choices' rows, times their weights if weights are given, in the order of the
/// choices. A choice that was dropped adds nothing.
/// Shapes:  row_of [n * top], rows below the number in `rows`; the others as write_rows
template <FloatingElement T, class A = Arithmetic<T>>
void sum_rows(Rank& rank, std::span<const std::uint32_t> row_of, std::size_t top, std::size_t width,
              std::span<const T> rows, std::span<const A> weights, std::span<T> tokens,
              SourceLocation where = SourceLocation::current()) {
    shardkit::detail::require_rows("sum_rows", row_of.size(), top, width, tokens.size(), weights.size(), where);
    const auto stream = rank.compute_stream();
    const std::size_t workers = shardkit::detail::row_workers<host::AnyKernels>(stream);
    host::AnyKernels::for_each_index(
        stream, row_of.size() / top * workers,
        shardkit::detail::SumRows<T, A>{row_of.data(), top, width, workers, rows.data(),
                                        weights.empty() ? nullptr : weights.data(), tokens.data()});
}

/// Writes the gradient of each choice's weight in sum_rows; 0 for one that was dropped.
/// Shapes:  rows as given to sum_rows; d_tokens [n, width], the gradient at its result; d_weights [n * top]
template <FloatingElement T, class A = Arithmetic<T>>
void weight_gradients(Rank& rank, std::span<const std::uint32_t> row_of, std::size_t top, std::size_t width,
                      std::span<const T> rows, std::span<const T> d_tokens, std::span<A> d_weights,
                      SourceLocation where = SourceLocation::current()) {
    shardkit::detail::require_rows("weight_gradients", row_of.size(), top, width, d_tokens.size(), d_weights.size(),
                                   where);
    host::AnyKernels::for_each_index(rank.compute_stream(), d_weights.size(),
                                     shardkit::detail::WeightGradient<T, A>{row_of.data(), top, width, rows.data(),
                                                                            d_tokens.data(), d_weights.data()});
}

}  // namespace shardkit::ep
