// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <shardkit/backend/cblas/cblas_products.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/optim/matrix_products.hpp>

#include "unit/muon/products_cases.hpp"

namespace cblas_products_test {

namespace sk = shardkit;

static_assert(sk::rules::MatrixProducts<sk::CblasProducts, sk::Stream, float>);

TEST_CASE("a CBLAS multiplies row-major matrices, and writes half of a symmetric result") {
    products_cases::check_host_products<float>(sk::CblasProducts{}, sk::Stream{});
    products_cases::check_host_products<double>(sk::CblasProducts{}, sk::Stream{});
}

}  // namespace cblas_products_test
