// SPDX-License-Identifier: Apache-2.0
#include <shardkit/core/stochastic_rounding.hpp>

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <doctest/doctest.h>

namespace sk = shardkit;

namespace stochastic_rounding_test {

namespace {

/// The mean over every draw, of `element` as a number: exact in double.
template <class T>
double mean(float value) {
    double sum = 0;
    for (std::uint32_t draw = 0; draw < 65536; ++draw) {
        sum += static_cast<double>(static_cast<float>(sk::rules::round_stochastically<T>(value, draw)));
    }
    return sum / 65536;
}

}  // namespace

TEST_CASE("philox: the known answers of Random123 for Philox4x32-10") {
    using Words = std::array<std::uint32_t, 4>;
    CHECK(sk::rules::philox({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    constexpr std::uint32_t all = 0xffffffff;
    CHECK(sk::rules::philox({all, all, all, all}, {all, all}) ==
          Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    CHECK(sk::rules::philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
          Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("draws_of_block: eight elements share the words of one call, past 2^35 elements") {
    const std::uint64_t seed = 0x123456789abcdefU;
    const std::uint64_t step = 0x100000007U;
    for (const std::uint64_t block : {std::uint64_t{0}, std::uint64_t{5}, std::uint64_t{1} << 33U}) {
        const auto words =
            sk::rules::philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32U), 7, 1},
                              {0x89abcdef, 0x1234567});
        for (std::uint64_t i = 8; i > 0; --i) {
            const std::uint32_t expected = i % 2 == 1 ? words[(i - 1) / 2] & 0xffffU : words[(i - 1) / 2] >> 16U;
            CHECK(sk::detail::draw_of(sk::detail::draws_of_block(seed, step, block), i - 1) == expected);
        }
    }
}

namespace {

template <std::size_t N>
void check_pack_draws(std::uint64_t element) {
    constexpr std::uint64_t seed = 0xfedcba987654321U;
    const sk::detail::PackDraws<N> pack(seed, 3, element);
    for (std::size_t i = 0; i < N; ++i) {
        const auto block = sk::detail::draws_of_block(seed, 3, (element + i) / 8);
        CHECK(pack[i] == sk::detail::draw_of(block, (element + i) % 8));
    }
}

}  // namespace

TEST_CASE("PackDraws: the draws of a pack's elements, wherever it begins") {
    for (const std::uint64_t begin : {std::uint64_t{0}, std::uint64_t{1} << 36U, ~std::uint64_t{0} - 31}) {
        for (std::uint64_t skipped = 0; skipped < 16; ++skipped) {
            check_pack_draws<1>(begin + skipped);
            check_pack_draws<2>(begin + skipped);
            check_pack_draws<4>(begin + skipped);
            check_pack_draws<8>(begin + skipped);
        }
    }
}

TEST_CASE("round_stochastically: the mean over all draws is the value, exactly; what is representable stays") {
    // Between two elements, across powers of two, of both signs, near zero.
    for (const float value : {1.001F, 1.9999F, -0.3F, 3.0e-5F, 65000.0F, 12.34567F, -4096.5F, 0.0F}) {
        CAPTURE(value);
        CHECK(mean<sk::bf16>(value) == static_cast<double>(value));
        CHECK(mean<sk::fp16>(value) == doctest::Approx(static_cast<double>(value)).epsilon(1e-12));
    }
    CHECK(mean<sk::bf16>(1.0e-39F) == static_cast<double>(1.0e-39F));
    CHECK(mean<sk::bf16>(-3.0e38F) == static_cast<double>(-3.0e38F));
    // Subnormal numbers of fp16, to 2^-16 of their spacing.
    for (const float value : {1.0e-6F, -4.4e-5F, 3.0e-8F, 5.0e-10F, 6.1e-5F}) {
        CAPTURE(value);
        CHECK(std::fabs(mean<sk::fp16>(value) - static_cast<double>(value)) <= 0x1p-40);
    }
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
        for (const std::uint32_t draw : {0U, 32768U, 65535U}) {
            const auto wide = std::bit_cast<sk::bf16>(static_cast<std::uint16_t>(bits));
            const auto narrow = std::bit_cast<sk::fp16>(static_cast<std::uint16_t>(bits));
            const float of_wide = static_cast<float>(wide);
            const float of_narrow = static_cast<float>(narrow);
            const bool kept =
                (std::isnan(of_wide) || sk::rules::round_stochastically<sk::bf16>(of_wide, draw).bits == bits) &&
                (std::isnan(of_narrow) || sk::rules::round_stochastically<sk::fp16>(of_narrow, draw).bits == bits);
            if (!kept) { FAIL("element ", bits, " with draw ", draw, " is another one"); }
        }
    }
}

TEST_CASE("round_stochastically: infinite and NaN stay so, and nothing wraps past the largest") {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    for (const std::uint32_t draw : {0U, 1U, 65535U}) {
        CHECK(std::isnan(static_cast<float>(sk::rules::round_stochastically<sk::bf16>(std::nanf(""), draw))));
        CHECK(std::isnan(static_cast<float>(sk::rules::round_stochastically<sk::fp16>(std::nanf(""), draw))));
        CHECK(static_cast<float>(sk::rules::round_stochastically<sk::bf16>(-infinity, draw)) == -infinity);
        CHECK(static_cast<float>(sk::rules::round_stochastically<sk::fp16>(infinity, draw)) == infinity);
        CHECK(static_cast<float>(sk::rules::round_stochastically<sk::fp16>(1e6F, draw)) == infinity);
    }
    constexpr float largest = std::numeric_limits<float>::max();
    CHECK(static_cast<float>(sk::rules::round_stochastically<sk::bf16>(largest, 0)) < infinity);
    CHECK(static_cast<float>(sk::rules::round_stochastically<sk::bf16>(largest, 65535)) == infinity);
    CHECK(static_cast<float>(sk::rules::round_stochastically<sk::fp16>(65535.0F, 0)) == 65504);
    CHECK(static_cast<float>(sk::rules::round_stochastically<sk::fp16>(65535.0F, 65535)) == infinity);
}

}  // namespace stochastic_rounding_test
