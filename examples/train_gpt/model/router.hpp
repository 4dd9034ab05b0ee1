// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <shardkit/expert_parallel/assignment.hpp>

#include "arena.hpp"
#include "convert.hpp"

namespace train_gpt {

/// How much a router's auxiliary loss counts beside the loss of tokens.
inline constexpr double auxiliary_coefficient = 0.01;

/// What a router chooses for the tokens of a pass. Choice t * top + k is the k-th of token t.
template <class A>
struct Choices {
    A* probabilities;          // [tokens, experts]
    A* weights;                // [tokens, top]
    std::uint32_t* chosen;     // [tokens, top], the expert
    std::uint32_t* row_of;     // [tokens, top]; no_row for a choice that was dropped
    std::uint32_t* choice_of;  // [rows], as they are sent: expert by expert; no_row for padding
    std::uint64_t* counts;     // [experts], of choices

    static Choices take(Arena& arena, std::size_t tokens, std::size_t experts, std::size_t top, std::size_t rows) {
        return {arena.take<A>(tokens * experts),         arena.take<A>(tokens * top),
                arena.take<std::uint32_t>(tokens * top), arena.take<std::uint32_t>(tokens * top),
                arena.take<std::uint32_t>(rows),         arena.take<std::uint64_t>(experts)};
    }
};

/// As rows: the experts of a token are the `top` largest of its logits, of equal ones the first. A choice's weight is
/// its share of the softmax over the chosen ones. Shapes: logits [tokens, experts]
/// Source: weights as Mixtral's, arXiv 2401.04088, section 2.1
template <class A>
struct ChooseExperts {
    std::size_t experts;
    std::size_t top;
    const A* logits;
    Choices<A> choices;

    template <class Row>
    constexpr void operator()(const Row& row, std::size_t t) const {
        const A* const of = logits + t * experts;
        A* const p = choices.probabilities + t * experts;
        std::uint32_t* const chosen = choices.chosen + t * top;
        const A largest = row.max(experts, [&](std::size_t e) { return of[e]; });
        row.each(experts, [&](std::size_t e) { p[e] = std::exp(of[e] - largest); });
        const A sum = row.template total<A>(experts, [&](std::size_t e) { return p[e]; });
        row.each(experts, [&](std::size_t e) { p[e] /= sum; });
        for (std::size_t k = 0; k < top; ++k) {
            const auto is_taken = [&](std::size_t e) {
                for (std::size_t before = 0; before < k; ++before) {
                    if (chosen[before] == e) { return true; }
                }
                return false;
            };
            const A best = row.max(
                experts, [&](std::size_t e) { return is_taken(e) ? std::numeric_limits<A>::lowest() : of[e]; });
            // The first that has it; of NaN, which has no largest, the first that is left.
            const std::size_t found = row.max(experts, [&](std::size_t e) {
                return is_taken(e) ? 0 : (of[e] == best ? 2 * experts : experts) - e;
            });
            row.once(
                [&] { chosen[k] = static_cast<std::uint32_t>((found > experts ? 2 * experts : experts) - found); });
        }
        A of_chosen{0};
        for (std::size_t k = 0; k < top; ++k) { of_chosen += p[chosen[k]]; }
        row.each(top, [&](std::size_t k) { choices.weights[t * top + k] = p[chosen[k]] / of_chosen; });
    }
};

/// As columns: how many choices of a part are of each expert. Shapes: chosen [choices], counts [parts, experts]
struct CountChoices {
    static constexpr std::size_t columns_at_once = 32;

    std::size_t choices;
    std::size_t experts;
    const std::uint32_t* chosen;
    std::size_t parts;
    std::uint64_t* counts;

    template <class Columns>
    constexpr void operator()(const Columns& columns, std::size_t part) const {
        std::array<std::uint64_t, Columns::most> count{};
        for (std::size_t c = part * choices / parts; c < (part + 1) * choices / parts; ++c) {
            const std::size_t column = chosen[c] - columns.first;
            if (column < columns.count) { ++count[column]; }
        }
        for (std::size_t j = 0; j < columns.count; ++j) { counts[part * experts + columns.first + j] = count[j]; }
    }
};
/// As each: the sums over all parts.
struct SumCounts {
    std::size_t experts;
    std::size_t parts;
    const std::uint64_t* of_parts;
    std::uint64_t* counts;

    constexpr void operator()(std::size_t e) const {
        std::uint64_t sum = 0;
        for (std::size_t part = 0; part < parts; ++part) { sum += of_parts[part * experts + e]; }
        counts[e] = sum;
    }
};
/// As columns: gives the choices of each expert their rows, in the order of the tokens. With a capacity each expert
/// has so many: choices past it are dropped, and rows that are left over are padding.
struct PlaceChoices {
    static constexpr std::size_t columns_at_once = 32;

    CountChoices of;
    std::size_t capacity;         // 0: none
    const std::uint64_t* counts;  // of all parts
    std::uint32_t* row_of;
    std::uint32_t* choice_of;

    template <class Columns>
    constexpr void operator()(const Columns& columns, std::size_t part) const {
        using shardkit::ep::no_row;
        std::array<std::uint64_t, Columns::most> next{};
        std::array<std::uint64_t, Columns::most> end{};
        std::uint64_t first = 0;
        for (std::size_t e = 0; capacity == 0 && e < columns.first; ++e) { first += counts[e]; }
        for (std::size_t j = 0; j < columns.count; ++j) {
            const std::size_t e = columns.first + j;
            next[j] = capacity == 0 ? first : e * capacity;
            end[j] = next[j] + (capacity == 0 ? counts[e] : capacity);
            first = end[j];
            for (std::size_t before = 0; before < part; ++before) { next[j] += of.counts[before * of.experts + e]; }
        }
        for (std::size_t c = part * of.choices / of.parts; c < (part + 1) * of.choices / of.parts; ++c) {
            const std::size_t j = of.chosen[c] - columns.first;
            if (j >= columns.count) { continue; }
            const std::uint64_t row = next[j]++;
            row_of[c] = row < end[j] ? static_cast<std::uint32_t>(row) : no_row;
            if (row < end[j]) { choice_of[row] = static_cast<std::uint32_t>(c); }
        }
        if (part + 1 < of.parts) { return; }
        for (std::size_t j = 0; j < columns.count; ++j) {
            for (std::uint64_t row = next[j]; row < end[j]; ++row) { choice_of[row] = no_row; }
        }
    }
};

/// Chooses experts by their logits, and gives the choices their rows. Shapes: scratch [column_parts, experts]
template <class A, class Place>
void choose_experts(std::size_t tokens, std::size_t experts, std::size_t top, std::size_t capacity, const A* logits,
                    const Choices<A>& choices, std::uint64_t* scratch, const Place& place) {
    const CountChoices of{tokens * top, experts, choices.chosen, Place::column_parts, scratch};
    place.rows(tokens, ChooseExperts<A>{experts, top, logits, choices});
    place.columns(experts, of);
    place.each(experts, SumCounts{experts, of.parts, scratch, choices.counts});
    place.columns(experts, PlaceChoices{of, capacity, choices.counts, choices.row_of, choices.choice_of});
}

/// As rows: the gradient at a token's logits of its choices' weights, whose gradients are given, and of the auxiliary
/// loss times `factor`. That is the one of the Switch Transformer, experts * sum over experts of (its share of the
/// choices) * (its mean probability). Shapes: d_weights [tokens, top]; d_logits [tokens, experts]
/// Source: arXiv 2101.03961, section 2.2
template <class S>
struct RouterBackward {
    using A = Arithmetic<S>;

    std::size_t tokens;
    std::size_t experts;
    std::size_t top;
    Choices<A> choices;
    const A* d_weights;
    A factor;
    S* d_logits;

    template <class Row>
    constexpr void operator()(const Row& row, std::size_t t) const {
        const A* const p = choices.probabilities + t * experts;
        const A* const weights = choices.weights + t * top;
        const A* const d = d_weights + t * top;
        const A of_share = factor * static_cast<A>(experts) / static_cast<A>(tokens);
        const auto share = [&](std::size_t e) {
            return static_cast<A>(choices.counts[e]) / static_cast<A>(tokens * top);
        };
        const A mean = row.template total<A>(experts, [&](std::size_t e) { return p[e] * of_share * share(e); });
        A weighted{0};
        for (std::size_t k = 0; k < top; ++k) { weighted += weights[k] * d[k]; }
        row.each(experts, [&](std::size_t e) {
            A sum = p[e] * (of_share * share(e) - mean);
            for (std::size_t k = 0; k < top; ++k) {
                if (choices.chosen[t * top + k] == e) { sum += weights[k] * (d[k] - weighted); }
            }
            d_logits[t * experts + e] = static_cast<S>(sum);
        });
    }
};

}  // namespace train_gpt
