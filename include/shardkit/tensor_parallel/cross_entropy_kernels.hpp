// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>

#include <shardkit/tensor_parallel/vocabulary_part.hpp>

namespace shardkit::detail {

/// The logits of some tokens, [tokens, stride], of which the first `columns` of each row count.
template <class A>
struct Rows {
    A* logits;
    std::size_t tokens;
    std::size_t stride;
    std::size_t columns;
};

/// As worker w of token t, finds the largest of columns w, w + workers, ...; partial is [workers, tokens].
template <class A>
struct LargestOfColumns {
    Rows<const A> rows;
    std::size_t workers;
    A* partial;

    constexpr void operator()(std::size_t i) const {
        const std::size_t token = i / workers;
        const std::size_t worker = i % workers;
        A largest = -std::numeric_limits<A>::infinity();
        for (std::size_t c = worker; c < rows.columns; c += workers) {
            const A value = rows.logits[token * rows.stride + c];
            largest = largest < value ? value : largest;
        }
        partial[worker * rows.tokens + token] = largest;
    }
};
template <class A>
struct LargestOfWorkers {
    const A* partial;
    std::size_t tokens;
    std::size_t workers;
    A* largest;

    constexpr void operator()(std::size_t token) const {
        A value = partial[token];
        for (std::size_t w = 1; w < workers; ++w) {
            const A other = partial[w * tokens + token];
            value = value < other ? other : value;
        }
        largest[token] = value;
    }
};

/// As worker w of token t, sums exp(logit - largest) over the same columns.
template <class A>
struct SumOfColumns {
    Rows<const A> rows;
    std::size_t workers;
    const A* largest;
    A* partial;

    constexpr void operator()(std::size_t i) const {
        const std::size_t token = i / workers;
        const std::size_t worker = i % workers;
        A sum = 0;
        for (std::size_t c = worker; c < rows.columns; c += workers) {
            sum += std::exp(rows.logits[token * rows.stride + c] - largest[token]);
        }
        partial[worker * rows.tokens + token] = sum;
    }
};

/// Computes a token's contribution before the sum over tp: the sum of this rank's exponentials, and its target's
/// logit if this rank has it. sums is [2, tokens].
template <class Token, class A>
struct SumOfWorkers {
    const A* partial;
    std::size_t workers;
    Rows<const A> rows;
    const Token* targets;
    tp::VocabularyPart part;
    const A* largest;
    A* sums;

    constexpr void operator()(std::size_t token) const {
        A sum = partial[token];
        for (std::size_t w = 1; w < workers; ++w) { sum += partial[w * rows.tokens + token]; }
        sums[token] = sum;
        const auto target = static_cast<std::size_t>(targets[token]);
        sums[rows.tokens + token] =
            part.contains(target) ? rows.logits[token * rows.stride + target - part.first] - largest[token] : A{0};
    }
};

/// Computes a token's loss.
template <class A>
struct LossOfToken {
    const A* sums;
    std::size_t tokens;
    A* losses;

    constexpr void operator()(std::size_t token) const {
        losses[token] = std::log(sums[token]) - sums[tokens + token];
    }
};

/// Replaces a logit by its gradient.
template <class Token, class A>
struct GradientOfLogit {
    Rows<A> rows;
    const Token* targets;
    tp::VocabularyPart part;
    const A* largest;
    const A* sums;
    A scale;

    constexpr void operator()(std::size_t i) const {
        const std::size_t token = i / rows.stride;
        const std::size_t column = i % rows.stride;
        if (column >= rows.columns) {
            rows.logits[i] = 0;
            return;
        }
        const bool hit = static_cast<std::size_t>(targets[token]) == part.first + column;
        const A probability = std::exp(rows.logits[i] - largest[token]) / sums[token];
        rows.logits[i] = scale * (hit ? probability - A{1} : probability);
    }
};

}  // namespace shardkit::detail
