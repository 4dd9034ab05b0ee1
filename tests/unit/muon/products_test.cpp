// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <shardkit/backend/host/command_queue.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/muon/host_products.hpp>
#include <shardkit/optim/matrix_products.hpp>

#include "products_cases.hpp"

namespace products_test {

namespace sk = shardkit;

static_assert(sk::rules::MatrixProducts<sk::HostProducts, sk::Stream, float>);
static_assert(sk::rules::MatrixProducts<sk::HostProducts, sk::Stream, double>);
// One violator for each requirement.
struct NoGram {
    static void multiply(sk::Stream stream, const sk::rules::MatrixProduct<float>& product);
};
struct NoMultiply {
    static void gram(sk::Stream stream, const sk::rules::GramProduct<float>& product);
};
static_assert(!sk::rules::MatrixProducts<NoGram, sk::Stream, float>);
static_assert(!sk::rules::MatrixProducts<NoMultiply, sk::Stream, float>);

TEST_CASE("the host's products are the sums, of whole tiles and of parts, and write no element that is not theirs") {
    products_cases::check_host_products<float>(sk::HostProducts{}, sk::Stream{});
    products_cases::check_host_products<double>(sk::HostProducts{}, sk::Stream{});
}

TEST_CASE("the host's products run in the order of a queue's stream") {
    sk::host::detail::CommandQueue queue;
    products_cases::check_host_products<float>(sk::HostProducts{}, sk::Stream{queue});
}

}  // namespace products_test
