// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/expert_parallel.hpp>
#include <shardkit/rank/engine_table.hpp>
#include <shardkit/rank/rank.hpp>

/// A layer whose expert e multiplies by e + 1, over tokens that say whose they are. Its source is the same for every
/// engine, whose memory need not be the host's.
namespace token_layer {

namespace sk = shardkit;

inline constexpr std::size_t experts = 4;
inline constexpr std::size_t top = 2;
inline constexpr std::size_t width = 3;

/// Tokens of a rank: rank 1 has none, and nobody chooses expert 2.
inline std::size_t tokens_of(std::size_t rank) { return rank == 1 ? 0 : 3 + rank; }
inline float token(std::size_t rank, std::size_t t, std::size_t i) {
    return static_cast<float>(1000 * (rank + 1) + 10 * t + i);
}
inline std::uint32_t chosen(std::size_t rank, std::size_t t, std::size_t k) {
    const std::uint32_t of[] = {0, 1, 3};
    return of[(rank + t + k) % 3];
}
inline float weight(std::size_t t, std::size_t k) { return k == 0 ? 0.5F : 0.25F * static_cast<float>(t % 2 + 1); }

/// Values in an engine's memory.
template <class T>
class Values {
  public:
    Values(sk::Rank& rank, std::span<const T> values) : table_(rank, values) {}
    std::span<T> span() const { return table_.span(); }
    std::span<const T> view() const { return span(); }
    std::vector<T> on_host(sk::Rank& rank) const {
        std::vector<T> values(table_.size());
        sk::host::AnyKernels::copy_out(rank.compute_stream(), view(), std::span(values));
        return values;
    }

  private:
    sk::detail::EngineTable<T> table_;
};

/// What a layer receives, gives and makes in its backward pass, against what the tokens say.
inline void check_layer(sk::Rank& rank, std::size_t capacity) {
    const auto numbers = [&](const std::vector<float>& values) {
        return Values<float>(rank, std::span<const float>(values));
    };
    const auto places = [&](std::span<const std::uint32_t> values) { return Values<std::uint32_t>(rank, values); };
    const auto shared = sk::ep::ranks(rank);
    const std::size_t n = tokens_of(rank.rank());
    std::vector<float> tokens(n * width), weights(n * top);
    std::vector<std::uint32_t> choices(n * top);
    for (std::size_t t = 0; t < n; ++t) {
        for (std::size_t i = 0; i < width; ++i) { tokens[t * width + i] = token(rank.rank(), t, i); }
        for (std::size_t k = 0; k < top; ++k) {
            choices[t * top + k] = chosen(rank.rank(), t, k);
            weights[t * top + k] = weight(t, k);
        }
    }
    sk::ep::Assignment assignment(experts, capacity);
    assignment.assign(choices);
    sk::ep::TokenExchange exchange{rank, shared, experts};
    const sk::ep::Routes routes = capacity > 0 ? exchange.route_all(capacity) : exchange.route(assignment.rows());
    const std::vector<std::uint64_t> counts(assignment.rows().begin(), assignment.rows().end());
    const sk::ep::Routes counted = exchange.route_counted(Values<std::uint64_t>(rank, counts).view());
    for (std::size_t source = 0; source < routes.sources(); ++source) {
        CHECK(counted.sent_to()[source] == routes.sent_to()[source]);
        for (std::size_t e = 0; e < routes.experts(); ++e) {
            CHECK(counted.received(e, source) == routes.received(e, source));
        }
    }
    const auto choice_of = places(assignment.choice_of()), row_of = places(assignment.row_of());
    const auto given = numbers(tokens), weight_of = numbers(weights);
    const auto rows = numbers(std::vector<float>(routes.rows_sent() * width, NAN));
    const auto got = numbers(std::vector<float>(routes.rows_received() * width, NAN));
    sk::ep::write_rows(rank, choice_of.view(), top, width, given.view(), std::span<const float>(), rows.span());
    exchange.dispatch(routes, width, rows.view(), got.span());
    std::vector<float> received = got.on_host(rank);

    REQUIRE(routes.experts() == experts / shared.size());
    for (std::size_t source = 0; source < routes.sources(); ++source) {
        const std::size_t from = rank.rank() - shared.rank() + source;
        for (std::size_t e = 0; e < routes.experts(); ++e) {
            const std::size_t expert = shared.rank() * routes.experts() + e;
            const sk::IndexRange range = routes.received(e, source);
            std::size_t at = range.begin;
            for (std::size_t t = 0; t < tokens_of(from); ++t) {
                for (std::size_t k = 0; k < top; ++k) {
                    if (chosen(from, t, k) != expert || at == range.end) { continue; }
                    for (std::size_t i = 0; i < width; ++i) { CHECK(received[at * width + i] == token(from, t, i)); }
                    ++at;
                }
            }
            for (; at < range.end; ++at) {  // padding
                CHECK(capacity > 0);
                for (std::size_t i = 0; i < width; ++i) { CHECK(received[at * width + i] == 0.0F); }
            }
            for (std::size_t i = range.begin * width; i < range.end * width; ++i) {
                received[i] *= static_cast<float>(expert + 1);
            }
        }
    }
    const auto back = numbers(std::vector<float>(routes.rows_sent() * width, NAN));
    const auto made = numbers(received);
    exchange.combine(routes, width, made.view(), back.span());
    const auto sums = numbers(std::vector<float>(n * width, -1.0F));
    sk::ep::sum_rows(rank, row_of.view(), top, width, back.view(), weight_of.view(), sums.span());
    const std::vector<float> out = sums.on_host(rank);
    std::vector<std::size_t> taken(experts);
    std::vector<bool> kept(n * top);
    for (std::size_t c = 0; c < kept.size(); ++c) { kept[c] = capacity == 0 || taken[choices[c]]++ < capacity; }
    std::size_t dropped = 0;
    for (const bool one : kept) { dropped += one ? 0 : 1; }
    CHECK(assignment.dropped() == dropped);
    for (std::size_t t = 0; t < n; ++t) {
        for (std::size_t i = 0; i < width; ++i) {
            float expected = 0;
            for (std::size_t k = 0; k < top; ++k) {
                if (!kept[t * top + k]) { continue; }
                expected += token(rank.rank(), t, i) * static_cast<float>(choices[t * top + k] + 1) * weight(t, k);
            }
            CHECK(out[t * width + i] == expected);
        }
    }
    // The gradients of the weights, where that of the output is 1.
    const auto ones = numbers(std::vector<float>(n * width, 1.0F));
    const auto of_weights = numbers(std::vector<float>(n * top, NAN));
    sk::ep::weight_gradients(rank, row_of.view(), top, width, back.view(), ones.view(), of_weights.span());
    const std::vector<float> d_weights = of_weights.on_host(rank);
    for (std::size_t c = 0; c < d_weights.size(); ++c) {
        float expected = 0;
        for (std::size_t i = 0; kept[c] && i < width; ++i) {
            expected += token(rank.rank(), c / top, i) * static_cast<float>(choices[c] + 1);
        }
        CHECK(d_weights[c] == expected);
    }
}

}  // namespace token_layer
