// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <shardkit/backend/host/command_queue.hpp>
#include <shardkit/comm/any_stream.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/muon/host_products.hpp>
#include <shardkit/optim/matrix_products.hpp>

#include "products_cases.hpp"

namespace products_test {

namespace sk = shardkit;

static_assert(sk::rules::MatrixProducts<sk::HostProducts, sk::InlineStream, float>);
static_assert(sk::rules::MatrixProducts<sk::HostProducts, sk::AnyStream, double>);
// One violator for each requirement.
struct NoGram {
    static void multiply(sk::InlineStream stream, const sk::rules::MatrixProduct<float>& product);
};
struct NoMultiply {
    static void gram(sk::InlineStream stream, const sk::rules::GramProduct<float>& product);
};
static_assert(!sk::rules::MatrixProducts<NoGram, sk::InlineStream, float>);
static_assert(!sk::rules::MatrixProducts<NoMultiply, sk::InlineStream, float>);

TEST_CASE("the host's products are the sums, of whole tiles and of parts, and write no element that is not theirs") {
    products_cases::check_host_products<float>(sk::HostProducts{}, sk::InlineStream{});
    products_cases::check_host_products<double>(sk::HostProducts{}, sk::InlineStream{});
}

TEST_CASE("the host's products run in the order of a queue's stream") {
    sk::host::detail::CommandQueue queue;
    products_cases::check_host_products<float>(sk::HostProducts{}, sk::AnyStream{queue});
}

}  // namespace products_test
