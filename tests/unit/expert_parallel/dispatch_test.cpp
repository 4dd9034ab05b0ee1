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
#include "token_layer.hpp"

namespace sk = shardkit;

namespace dispatch_test {

namespace {

using namespace token_layer;

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

TEST_CASE("dispatch: a rank that sends and gets nothing, and no rank that has a token") {
    for (const std::size_t tokens : {3U, 0U}) {
        sk::threads::run(sk::ExpertMesh<sk::DeviceMesh<2>, 2>{}, [&](auto& rank) {
            sk::ep::TokenExchange exchange{rank, sk::ep::ranks(rank), experts};
            const std::vector<std::uint32_t> first(rank.rank() == 0 ? tokens : 0);  // expert 0, on rank 0
            sk::ep::Assignment assignment(experts);
            assignment.assign(first);
            const auto routes = exchange.route(assignment.rows());
            REQUIRE(routes.rows_received() == first.size());
            const std::vector<float> rows(first.size() * width, static_cast<float>(tokens));
            std::vector<float> received(rows.size()), back(rows.size());
            exchange.dispatch(routes, width, std::span<const float>(rows), std::span(received));
            exchange.combine(routes, width, std::span<const float>(received), std::span(back));
            CHECK(back == rows);
        });
    }
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
