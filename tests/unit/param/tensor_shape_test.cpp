// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <limits>

#include <doctest/doctest.h>

#include <shardkit/param/tensor_shape.hpp>

namespace tensor_shape_test {

namespace {

using shardkit::TensorShape;
constexpr std::size_t largest = std::numeric_limits<std::size_t>::max();
constexpr std::size_t half = std::size_t{1} << 32U;

static_assert(TensorShape{}.numel() == 1 && TensorShape{}.countable(), "a scalar has one element");
static_assert(TensorShape{3, {4, 5, 6}}.numel() == 120);
static_assert(TensorShape{2, {half, half - 1}}.countable() && !TensorShape{2, {half, half}}.countable());
static_assert(TensorShape{1, {largest}}.countable() && !TensorShape{2, {largest, 2}}.countable());
static_assert(TensorShape{8, {256, 256, 256, 256, 256, 256, 256, 255}}.countable());
static_assert(!TensorShape{8, {256, 256, 256, 256, 256, 256, 256, 256}}.countable());
static_assert(TensorShape{2, {half, half - 1}}.numel() == 0xffffffff00000000U);
static_assert(TensorShape{1, {3}} == TensorShape{1, {3}} && !(TensorShape{1, {3}} == TensorShape{2, {3, 1}}));

}  // namespace

TEST_CASE("TensorShape: described as a list of extents") {
    CHECK(TensorShape{}.describe() == "[]");
    CHECK(TensorShape{1, {7}}.describe() == "[7]");
    CHECK(TensorShape{2, {768, 3072}}.describe() == "[768, 3072]");
    CHECK(TensorShape{3, {1, largest, 2}}.describe() == "[1, 18446744073709551615, 2]");
}

}  // namespace tensor_shape_test
