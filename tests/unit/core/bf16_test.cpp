// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <type_traits>

#include <shardkit/core/bf16.hpp>

#include "half_checks.hpp"

namespace sk = shardkit;
namespace test = shardkit::test;

namespace bf16_test {

TEST_CASE("bf16: every bit pattern widens to its value and returns unchanged") {
    test::check_every_pattern<sk::bf16>(test::bf16_format);
}

TEST_CASE("bf16: conversion rounds to nearest, ties to even, as an oracle in long double does") {
    test::check_rounding<sk::bf16>(test::bf16_format);
}

TEST_CASE("bf16: literals worked out by hand") {
    CHECK(sk::bf16(1.0F).bits == 0x3f80);
    CHECK(sk::bf16(-2.0F).bits == 0xc000);
    CHECK(sk::bf16(0x1.01p0F).bits == 0x3f80);        // a tie: 0x3f80 is even
    CHECK(sk::bf16(0x1.03p0F).bits == 0x3f82);        // a tie: 0x3f82 is even
    CHECK(sk::bf16(0x1.010002p0F).bits == 0x3f81);    // just past the tie
    CHECK(sk::bf16(0x1.fffffep127F).bits == 0x7f80);  // rounds up to infinity
    CHECK(sk::bf16(0x1p-149F).bits == 0);
    CHECK(sk::bf16(-0.0F).bits == 0x8000);
    CHECK(std::isnan(static_cast<float>(sk::bf16(std::numeric_limits<float>::signaling_NaN()))));
}

TEST_CASE("bf16: comparison follows the values, not the bits") {
    CHECK(sk::bf16(0.0F) == sk::bf16(-0.0F));
    CHECK_FALSE(sk::bf16(NAN) == sk::bf16(NAN));
    CHECK(sk::bf16{} == sk::bf16(0.0F));
}

static_assert(sk::bf16(0x1.03p0F).bits == 0x3f82, "conversions are constant expressions");
static_assert(static_cast<float>(sk::bf16(-1.5F)) == -1.5F);
static_assert(std::is_trivially_copyable_v<sk::bf16> && sizeof(sk::bf16) == 2);
static_assert(!std::is_convertible_v<float, sk::bf16> && !std::is_convertible_v<sk::bf16, float>,
              "no silent loss of precision");

}  // namespace bf16_test
