// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <type_traits>

#include <shardkit/core/fp16.hpp>

#include "half_checks.hpp"

namespace sk = shardkit;
namespace test = shardkit::test;

namespace fp16_test {

TEST_CASE("fp16: every bit pattern widens to its value and returns unchanged") {
    test::check_every_pattern<sk::fp16>(test::fp16_format);
}

TEST_CASE("fp16: conversion rounds to nearest, ties to even, as an oracle in long double does") {
    test::check_rounding<sk::fp16>(test::fp16_format);
}

TEST_CASE("fp16: literals worked out by hand") {
    CHECK(sk::fp16(1.0F).bits == 0x3c00);
    CHECK(sk::fp16(-2.0F).bits == 0xc000);
    CHECK(sk::fp16(65504.0F).bits == 0x7bff);         // the largest finite value
    CHECK(sk::fp16(0x1.ffdffep15F).bits == 0x7bff);   // just below 65520
    CHECK(sk::fp16(65520.0F).bits == 0x7c00);         // a tie with infinity, which is even
    CHECK(sk::fp16(2049.0F).bits == 0x6800);          // a tie between 2048 and 2050
    CHECK(sk::fp16(2051.0F).bits == 0x6802);          // a tie between 2050 and 2052
    CHECK(sk::fp16(0x1p-14F).bits == 0x0400);         // the smallest normal value
    CHECK(sk::fp16(0x1p-24F).bits == 0x0001);         // the smallest subnormal value
    CHECK(sk::fp16(0x1p-25F).bits == 0x0000);         // a tie with zero
    CHECK(sk::fp16(0x1.000002p-25F).bits == 0x0001);  // just past that tie
    CHECK(sk::fp16(-0.0F).bits == 0x8000);
    CHECK(std::isnan(static_cast<float>(sk::fp16(std::numeric_limits<float>::signaling_NaN()))));
}

TEST_CASE("fp16: comparison follows the values, not the bits") {
    CHECK(sk::fp16(0.0F) == sk::fp16(-0.0F));
    CHECK_FALSE(sk::fp16(NAN) == sk::fp16(NAN));
    CHECK(sk::fp16{} == sk::fp16(0.0F));
}

static_assert(sk::fp16(2051.0F).bits == 0x6802, "conversions are constant expressions");
static_assert(static_cast<float>(sk::fp16(-1.5F)) == -1.5F);
static_assert(std::is_trivially_copyable_v<sk::fp16> && sizeof(sk::fp16) == 2);
static_assert(!std::is_convertible_v<float, sk::fp16> && !std::is_convertible_v<sk::fp16, float>,
              "no silent loss of precision");

}  // namespace fp16_test
