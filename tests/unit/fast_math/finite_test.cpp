// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/host/kernels.hpp>
#include <shardkit/core/block8.hpp>
#include <shardkit/core/codes.hpp>
#include <shardkit/core/finite.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/step/divisor.hpp>
#include <shardkit/step/loss_scale_state.hpp>

// Compiled with -Ofast, as llm.c is: what the library says of infinity and NaN does not depend on it.

namespace finite_test {

namespace sk = shardkit;

namespace {

// Not constants that the compiler knows: made of bits at run time.
template <class T, class Bits>
T made_of(Bits bits) {
    volatile Bits hidden = bits;
    return std::bit_cast<T>(static_cast<Bits>(hidden));
}
double infinity() { return made_of<double>(std::uint64_t{0x7ff0'0000'0000'0000}); }
double nan() { return made_of<double>(std::uint64_t{0x7ff8'0000'0000'0000}); }
float infinity_f() { return made_of<float>(std::uint32_t{0x7f80'0000}); }
float nan_f() { return made_of<float>(std::uint32_t{0xffc0'0000}); }

template <class T>
double nonfinite_in(std::size_t size, std::size_t at, float value) {
    std::vector<T> gradient(size, static_cast<T>(1.0F));
    gradient[at] = static_cast<T>(value);
    sk::detail::NormSum into;
    sk::detail::HostKernels::norm_partial(sk::detail::InlineStream{}, std::span<const T>(gradient), 1.0, into);
    return static_cast<double>(into.nonfinite);
}

}  // namespace

TEST_CASE("this file is compiled as one that knows no infinities") {
#ifdef __FAST_MATH__
    CHECK(__FINITE_MATH_ONLY__ == 1);
#else
    FAIL("expected -Ofast");
#endif
}

TEST_CASE("is_finite by bits") {
    using sk::detail::is_finite;
    CHECK(is_finite(std::numeric_limits<double>::max()));
    CHECK(is_finite(-std::numeric_limits<float>::max()));
    CHECK(is_finite(made_of<float>(std::uint32_t{1})));
    CHECK(is_finite(0.0));
    CHECK_FALSE(is_finite(infinity()));
    CHECK_FALSE(is_finite(nan()));
    CHECK_FALSE(is_finite(infinity_f()));
    CHECK_FALSE(is_finite(-infinity_f()));
    CHECK_FALSE(is_finite(nan_f()));
}

TEST_CASE("the norm counts an infinite and a NaN element, in every type and place") {
    for (const std::size_t at : {0U, 7U, 4095U, 4096U, 9999U}) {
        CAPTURE(at);
        for (const float value : {infinity_f(), -infinity_f(), nan_f()}) {
            CHECK(nonfinite_in<double>(10'000, at, value) > 0);
            CHECK(nonfinite_in<float>(10'000, at, value) > 0);
            CHECK(nonfinite_in<sk::bf16>(10'000, at, value) > 0);
            CHECK(nonfinite_in<sk::fp16>(10'000, at, value) > 0);
        }
        CHECK(nonfinite_in<float>(10'000, at, 3e38F) == 0);  // its square overflows, it does not
        CHECK(nonfinite_in<sk::fp16>(10'000, at, 60'000) == 0);
    }
}

TEST_CASE("numbers that make no sense are refused") {
    for (const double wrong : {infinity(), nan()}) {
        CHECK_THROWS_AS(sk::divide_by(wrong), std::invalid_argument);
        CHECK_THROWS_AS(sk::validate(sk::LossScaleOptions{.initial = wrong}), std::invalid_argument);
        CHECK_THROWS_AS(sk::validate(sk::LossScaleOptions{.growth_factor = wrong}), std::invalid_argument);
        CHECK_THROWS_AS(sk::validate(sk::LossScaleOptions{.backoff_factor = wrong}), std::invalid_argument);
        CHECK_THROWS_AS(sk::validate(sk::AdamWOptions{.learning_rate = wrong}), std::invalid_argument);
        CHECK_THROWS_AS(sk::validate(sk::AdamWOptions{.beta1 = wrong}), std::invalid_argument);
        CHECK_THROWS_AS(sk::validate(sk::AdamWOptions{.weight_decay = wrong}), std::invalid_argument);
    }
}

TEST_CASE("fp16 keeps its subnormals, with a processor that takes subnormal floats for zero") {
    for (std::uint32_t bits = 1; bits < 0x400; ++bits) {
        sk::fp16 half;
        half.bits = static_cast<std::uint16_t>(bits);
        const auto value = static_cast<float>(half);
        CHECK(std::bit_cast<std::uint32_t>(value) ==
              std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<double>(bits) / (1U << 24U))));
        CHECK(sk::fp16(value).bits == half.bits);
    }
}

TEST_CASE("a block with an infinite or NaN element has no finite scale; codes are rounded to nearest even") {
    using Codec = sk::detail::CodeFormat<sk::block_int8>;
    const auto encoded = [](float number, float scale) { return static_cast<int>(Codec::encode(number, scale)); };
    for (const float wrong : {infinity_f(), -infinity_f(), nan_f()}) {
        float largest = 0;
        for (const float element : {1.0F, wrong, 2.0F}) { largest = sk::detail::larger_magnitude(largest, element); }
        CHECK_FALSE(sk::detail::is_finite(Codec::scale(largest)));
        CHECK(encoded(1.0F, Codec::scale(largest)) == 0);
        CHECK_FALSE(sk::detail::is_finite(Codec::decode(sk::block_int8{1}, Codec::scale(largest))));
    }
    for (const int code : {-127, -4, -3, -1, 0, 2, 3, 126}) {
        const auto at = static_cast<float>(code);
        CHECK(encoded(at, 1.0F) == code);
        CHECK(encoded(at + 0.25F, 1.0F) == code);
        CHECK(encoded(at + 0.5F, 1.0F) == (code % 2 == 0 ? code : code + 1));
        CHECK(encoded(at + 0.75F, 1.0F) == code + 1);
    }
}

TEST_CASE(
    "Block8: a block with an infinite or NaN number has no finite scale, and codes are those of strict arithmetic") {
    using sk::Block8;
    for (const float wrong : {infinity_f(), -infinity_f(), nan_f()}) {
        const std::array numbers{1.0F, wrong, 2.0F};
        const float scale = Block8::scale(sk::detail::largest_magnitude(numbers.data(), numbers.size()));
        CHECK_FALSE(sk::detail::is_finite(scale));
        CHECK_FALSE(sk::detail::is_finite(Block8::decode<true>(std::uint32_t{7}, scale)));
        CHECK_FALSE(sk::detail::is_finite(Block8::decode<false>(std::uint32_t{7}, scale)));
    }
    // Of the least scale, whose smallest code is the smallest number that no processor takes for zero.
    const float scale = Block8::scale(0);
    CHECK(std::bit_cast<std::uint32_t>(scale) == (127U - 103U) << 23U);
    for (std::uint32_t code = 1; code < 256; ++code) {
        const std::uint32_t steps = code % 32 + 32;  // of a 32nd of 2, 4, ...
        const double expected = static_cast<double>(steps << code / 32) / 16 - 2;
        const float square = Block8::decode<true>(code, scale);
        CHECK(static_cast<double>(square) == expected * static_cast<double>(scale));
        CHECK((Block8::encode<true>(square, Block8::inverse(scale), 0U) & 0xffU) == code);
        CHECK((Block8::encode<true>(square, Block8::inverse(scale), 0x3ffffU) & 0xffU) == code);
    }
    // A subnormal number is a code of 0, and as a square that of the smallest, whatever is drawn.
    const auto subnormal = std::bit_cast<float>(0x007f'ffffU);
    CHECK((Block8::encode<false>(subnormal, Block8::inverse(scale), 0x7ffffU) & 0xffU) == 0);
    CHECK((Block8::encode<true>(subnormal, Block8::inverse(scale), 0U) & 0xffU) == 1);
    CHECK((Block8::encode<true>(0.0F, Block8::inverse(scale), 0x3ffffU) & 0xffU) == 0);
}

}  // namespace finite_test
