// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/expert_parallel.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/mesh/expert_mesh.hpp>

#include "../thrown_message.hpp"

namespace sk = shardkit;

namespace dispatch_test {

namespace {

constexpr std::size_t experts = 4;
constexpr std::size_t top = 2;
constexpr std::size_t width = 3;

/// Tokens of a rank: rank 1 has none, and nobody chooses expert 2.
std::size_t tokens_of(std::size_t rank) { return rank == 1 ? 0 : 3 + rank; }
float token(std::size_t rank, std::size_t t, std::size_t i) {
    return static_cast<float>(1000 * (rank + 1) + 10 * t + i);
}
std::uint32_t chosen(std::size_t rank, std::size_t t, std::size_t k) {
    const std::uint32_t of[] = {0, 1, 3};
    return of[(rank + t + k) % 3];
}
float weight(std::size_t t, std::size_t k) { return k == 0 ? 0.5F : 0.25F * static_cast<float>(t % 2 + 1); }

/// A layer whose expert e multiplies by e + 1: its outputs, and the rows that it has got.
template <class Rank>
void check_layer(Rank& rank, std::size_t capacity) {
    const auto shared = sk::ep::ranks(rank);
    const std::size_t n = tokens_of(rank.rank());
    std::vector<float> tokens(n * width), weights(n * top), out(n * width, -1.0F);
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
    std::vector<float> rows(routes.rows_sent() * width, NAN), received(routes.rows_received() * width, NAN);
    sk::ep::write_rows(rank, assignment.choice_of(), top, width, std::span<const float>(tokens),
                       std::span<const float>(), std::span<float>(rows));
    exchange.dispatch(routes, width, std::span<const float>(rows), std::span<float>(received));

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
    std::vector<float> back(rows.size(), NAN);
    exchange.combine(routes, width, std::span<const float>(received), std::span<float>(back));
    sk::ep::sum_rows(rank, assignment.row_of(), top, width, std::span<const float>(back),
                     std::span<const float>(weights), std::span<float>(out));
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
    const std::vector<float> ones(n * width, 1.0F);
    std::vector<float> d_weights(n * top, NAN);
    sk::ep::weight_gradients(rank, assignment.row_of(), top, width, std::span<const float>(back),
                             std::span<const float>(ones), std::span<float>(d_weights));
    for (std::size_t c = 0; c < d_weights.size(); ++c) {
        float expected = 0;
        for (std::size_t i = 0; kept[c] && i < width; ++i) {
            expected += token(rank.rank(), c / top, i) * static_cast<float>(choices[c] + 1);
        }
        CHECK(d_weights[c] == expected);
    }
}

}  // namespace

TEST_CASE("dispatch and combine: rows of each source and expert, ranks without tokens, with and without a capacity") {
    for (const std::size_t ep : {1U, 2U, 4U}) {
        CAPTURE(ep);
        for (const std::size_t capacity : {0U, 1U, 3U, 16U}) {
            CAPTURE(capacity);
            sk::threads::run(sk::ExpertMesh{sk::DeviceMesh{4}, ep}, [&](auto& rank) { check_layer(rank, capacity); });
        }
    }
}

TEST_CASE("dispatch: no rank has a token") {
    sk::threads::run(sk::ExpertMesh<sk::DeviceMesh<2>, 2>{}, [&](auto& rank) {
        sk::ep::TokenExchange exchange{rank, sk::ep::ranks(rank), experts};
        sk::ep::Assignment none(experts);
        none.assign({});
        const auto routes = exchange.route(none.rows());
        CHECK(routes.rows_received() == 0);
        exchange.dispatch(routes, width, std::span<const float>(), std::span<float>());
        exchange.combine(routes, width, std::span<const float>(), std::span<float>());
    });
}

TEST_CASE("dispatch: what cannot be is refused, with both sides") {
    sk::threads::run(sk::ExpertMesh<sk::DeviceMesh<2>, 2>{}, [&](auto& rank) {
        const auto shared = sk::ep::ranks(rank);
        CHECK_INVALID_ARGUMENT((sk::ep::TokenExchange{rank, shared, 3}),
                               "ep::TokenExchange: 3 experts over 2 ranks of ep, expected a number that 2 divides");
        sk::ep::TokenExchange exchange{rank, shared, experts};
        const std::vector<std::size_t> three(3);
        CHECK_INVALID_ARGUMENT(exchange.route(three), "ep::TokenExchange: numbers of rows for 3 experts, expected 4");
        const auto routes = exchange.route_all(2);
        std::vector<float> rows(8 * width), few(7 * width);
        CHECK_INVALID_ARGUMENT(exchange.dispatch(routes, width, std::span<const float>(few), std::span<float>(rows)),
                               "ep::TokenExchange: dispatch of 21 elements into 24, expected 8 and 8 rows of 3");
        sk::ep::Assignment assignment(experts);
        const std::vector<std::uint32_t> wrong{0, 4};
        CHECK_INVALID_ARGUMENT(assignment.assign(wrong),
                               "ep::Assignment: choice 1 is expert 4, expected one below 4");
    });
}

}  // namespace dispatch_test
