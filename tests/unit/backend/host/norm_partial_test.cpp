// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <shardkit/backend/host/kernels.hpp>

#include "kernel_data.hpp"

namespace sk = shardkit;
namespace test = shardkit::test;

namespace norm_partial_test {

namespace {

constexpr std::size_t lengths[] = {0, 1, 2, 31, 32, 33, 4095, 4096, 4097, 10000};
constexpr std::size_t positions[] = {0, 31, 4095, 4096, 8191, 8192, 8200};
constexpr double infinity = std::numeric_limits<double>::infinity();

template <class T>
sk::detail::NormTotal norm_of(std::span<const T> elements, double scale = 1) {
    sk::detail::NormSum sum;
    sk::detail::HostKernels::norm_partial({}, elements, scale, sum);
    return sum.total();
}

template <class T>
long double exact_sum_of_squares(const std::vector<T>& elements, double scale) {
    long double sum = 0;
    for (const T element : elements) {
        const long double scaled = static_cast<long double>(test::widened(element)) * static_cast<long double>(scale);
        sum += scaled * scaled;
    }
    return sum;
}

enum class Contraction { none, fused };

/// The documented order, written out: squares, halves of packs of 128 bytes, then exact. In fp32 a pack's first
/// additions can be fused, as the compiler chooses on this machine.
template <class T>
double documented_sum(const std::vector<T>& elements, double scale, Contraction contraction) {
    using A = sk::Arithmetic<T>;
    constexpr std::size_t pack = 128 / sizeof(T);
    sk::ExactSum total;
    for (std::size_t at = 0; at < elements.size(); at += pack) {
        A sums[pack]{};
        for (std::size_t i = at; i < elements.size() && i < at + pack; ++i) {
            sums[i - at] = static_cast<A>(scale) * static_cast<A>(elements[i]);
        }
        for (std::size_t half = pack / 2; half > 0; half /= 2) {
            for (std::size_t i = 0; i < half; ++i) {
                const bool squares = half == pack / 2;
                const A other = squares ? sums[half + i] * sums[half + i] : sums[half + i];
                const A own = sums[i] * sums[i];
                sums[i] = !squares                            ? sums[i] + other
                          : contraction == Contraction::fused ? std::fma(sums[i], sums[i], other)
                                                              : own + other;
            }
        }
        total.add(static_cast<double>(sums[0]));
    }
    return total.value();
}

}  // namespace

TEST_CASE_TEMPLATE("norm: blocks of packs' sums near and far from each other add up exactly, in any order", A, float,
                   double) {
    constexpr std::size_t blocks = 60;
    sk::ExactSum one_by_one;
    sk::ExactSum total;
    std::size_t taken = 0;
    {
        sk::host::detail::NearSums<A> near(total);
        for (std::size_t block = 0; block < blocks; ++block) {
            auto sums = test::random_squares<A>(sk::host::detail::near_sums, static_cast<unsigned>(block));
            for (std::size_t i = 0; i < sums.size(); ++i) {
                sums[i] = std::ldexp(sums[i] + A{1}, static_cast<int>(block / 3 % 5) * 13);
                if (block % 4 == 1 && i % 5 == 0) { sums[i] = 0; }
                if (block % 7 == 6 && i == 100) { sums[i] = A{0x1p-70F}; }  // out of any range with the others
            }
            bool zeros = false;
            const bool near_each_other = near.add(sums.data(), &zeros);
            CHECK(near_each_other == (block % 7 != 6));
            if (near_each_other) {
                CHECK((zeros || block % 4 != 1));
                ++taken;
                for (const A sum : sums) { one_by_one.add(static_cast<double>(sum)); }
            }
        }
    }
    CHECK(taken > 50);
    std::vector<double> numbers(sk::ExactSum::numbers);
    std::vector<double> expected(sk::ExactSum::numbers);
    total.add_to(numbers.data());
    one_by_one.add_to(expected.data());
    CHECK(numbers == expected);
}

TEST_CASE_TEMPLATE("norm_partial: within rounding of a sum in long double, at any length", T, double, float, sk::bf16,
                   sk::fp16) {
    const double tolerance = sizeof(sk::Arithmetic<T>) == 4 ? 1e-5 : 1e-14;
    for (const std::size_t length : lengths) {
        CAPTURE(length);
        const auto elements = test::random_elements<T>(length, static_cast<std::uint32_t>(length));
        for (const double scale : {1.0, 0.25, 1.0 / 3}) {
            const auto exact = static_cast<double>(exact_sum_of_squares(elements, scale));
            const sk::detail::NormTotal partial = norm_of(std::span<const T>(elements), scale);
            CHECK(std::fabs(partial.sum_of_squares - exact) <= tolerance * exact);
            CHECK(partial.nonfinite == 0);
        }
    }
}

TEST_CASE_TEMPLATE("norm_partial: bitwise the documented order, whatever the registers' width", T, double, float,
                   sk::bf16, sk::fp16) {
    for (const std::size_t length : lengths) {
        const auto elements = test::random_elements<T>(length, static_cast<std::uint32_t>(length));
        const double given = norm_of(std::span<const T>(elements), 0.3).sum_of_squares;
        // Whether a product and a sum become one instruction is the compiler's choice on this machine.
        const bool plain = given == documented_sum(elements, 0.3, Contraction::none);
        const bool fused = given == documented_sum(elements, 0.3, Contraction::fused);
        CHECK((plain || fused));
    }
}

TEST_CASE("norm_partial: a closed form, and packs whose sum is exact") {
    const std::vector<float> threes(10 * 4096 + 1, 3.0F);
    CHECK(norm_of(std::span<const float>(threes)).sum_of_squares == 9.0 * (10 * 4096 + 1));
    std::vector<float> spread(3 * 32, 0.0F);
    spread[0] = 0x1p40F;
    spread[94] = spread[95] = 0x1p13F;  // half of the last bit of a double of 2^80: a tie,
    spread[40] = 1.0F;                  // which this breaks
    CHECK(norm_of(std::span<const float>(spread)).sum_of_squares == 0x1p80 + 0x1p28);
}

TEST_CASE("norm_partial: packs without anything between others, and packs that fp32 takes for such") {
    // Within a block, sums of packs from one end to the other of what lanes add at once, and a tie between doubles.
    std::vector<float> some(128 * 32, 0.0F);
    some[5 * 32] = 0x1p8F;
    some[6 * 32] = some[6 * 32 + 1] = 0x1p15F;
    some[7 * 32] = 1.0F;
    some[7 * 32 + 1] = 0x1p-11F;
    constexpr double rounded_down = 0x1p31 + 0x1p16 + 1;
    CHECK(norm_of(std::span<const float>(some)).sum_of_squares == rounded_down);
    some[127 * 32 + 31] = 1e-25F;  // breaks the tie; in fp32 its square is zero
    CHECK(norm_of(std::span<const float>(some)).sum_of_squares == rounded_down + 0x1p-21);
    std::vector<double> doubles(some.size() / 2, 0.0);
    doubles[2047] = 3;
    CHECK(norm_of(std::span<const double>(doubles)).sum_of_squares == 9);
    CHECK(norm_of(std::span<const double>(std::vector<double>(2048))) == sk::detail::NormTotal{});
}

TEST_CASE_TEMPLATE("norm_partial: cut anywhere at packs, and in any order, the same bits", T, float, double, sk::bf16,
                   sk::fp16) {
    constexpr std::size_t pack = 128 / sizeof(T);
    // Packs from the smallest to the largest sums, with zeros, so that each way of adding them is taken.
    auto elements = test::random_elements<T>(300 * pack + 17, 9);
    for (std::size_t p = 0; p < 300; ++p) {
        const double size = p % 7 == 0 ? 0 : std::ldexp(1, static_cast<int>(p * 37 % 60) - 30);
        for (std::size_t i = 0; i < pack; ++i) {
            elements[p * pack + i] = test::rounded<T>(test::widened(elements[p * pack + i]) * size);
        }
    }
    const std::span<const T> all(elements);
    const sk::detail::NormTotal whole = norm_of(all, 0.7);
    CHECK(whole.sum_of_squares > 0);
    for (const std::size_t packs : {1U, 2U, 5U, 128U, 299U}) {
        CAPTURE(packs);
        std::vector<double> travelling(sk::detail::NormSum::numbers);
        for (std::size_t from = (all.size() - 1) / (packs * pack) * packs * pack;; from -= packs * pack) {
            sk::detail::NormSum part;
            sk::detail::HostKernels::norm_partial({}, all.subspan(from, std::min(packs * pack, all.size() - from)),
                                                  0.7, part);
            part.add_to(travelling.data());
            if (from == 0) { break; }
        }
        CHECK(sk::detail::NormSum(travelling.data()).total() == whole);
    }
}

TEST_CASE_TEMPLATE("norm_partial: the address does not matter", T, double, float, sk::fp16) {
    const auto elements = test::random_elements<T>(5000, 11);
    const double expected = norm_of(std::span<const T>(elements)).sum_of_squares;
    for (std::size_t offset = 0; offset < 9; ++offset) {
        std::vector<T> shifted(offset);
        shifted.insert(shifted.end(), elements.begin(), elements.end());
        CHECK(norm_of(std::span<const T>(shifted).subspan(offset)).sum_of_squares == expected);
    }
}

TEST_CASE_TEMPLATE("norm_partial: an infinite or NaN element anywhere is found", T, double, float, sk::bf16,
                   sk::fp16) {
    for (const double bad : {infinity, -infinity, std::nan("")}) {
        for (const std::size_t at : positions) {
            auto elements = test::random_elements<T>(8201, 13);
            elements[at] = test::rounded<T>(bad);
            const sk::detail::NormTotal partial = norm_of(std::span<const T>(elements), 1.0 / 65536);
            CHECK(partial.nonfinite > 0);
            CHECK_FALSE(std::isfinite(partial.sum_of_squares));
        }
    }
}

TEST_CASE("norm_partial: squares that fp32 does not hold are summed in double, at either end of its range") {
    const auto check = [](const std::vector<float>& elements, double scale) {
        CAPTURE(scale);
        double expected = 0;
        for (const float element : elements) { expected += std::pow(static_cast<double>(element) * scale, 2); }
        const sk::detail::NormTotal got = norm_of(std::span<const float>(elements), scale);
        CHECK(got.sum_of_squares == doctest::Approx(expected).epsilon(1e-5));
        CHECK(expected > 0);
        CHECK(got.nonfinite == 0);
    };
    for (const float size :
         {1e-45F, 1e-41F, 3e-39F, 1e-30F, 1e-23F, 1e-20F, 1e-13F, 1e-12F, 1e-11F, 1e15F, 1e18F, 1e19F, 3e38F}) {
        CAPTURE(size);
        check(std::vector<float>(100, size), 1);
        std::vector<float> some(9000);  // a block whose sum fp32 holds between two whose sums it does not
        for (std::size_t i = 0; i < some.size(); i += 3) { some[i] = i / 4096 == 1 ? 0.5F : size; }
        check(some, 1);
        std::vector<float> beside(4096, size);
        beside[7] = 1e-15F;
        check(beside, 1);
    }
    check(std::vector<float>(100, 1e-20F), 1e-30);
    check(std::vector<float>(100, 1e-20F), 1e50);
    check(std::vector<float>(100, 1e30F), 1e-60);
    const std::vector<sk::bf16> tiny(5000, sk::bf16(1e-30F));
    CHECK(norm_of(std::span<const sk::bf16>(tiny)).sum_of_squares == doctest::Approx(5000 * 1e-60).epsilon(0.02));
    CHECK(norm_of(std::span<const float>(std::vector<float>(5000))) == sk::detail::NormTotal{});
}

TEST_CASE("norm_partial: a finite element that is infinite once it is scaled counts as an update would take it") {
    std::vector<float> elements(5000, 1);
    elements[4999] = 1e30F;
    CHECK(norm_of(std::span<const float>(elements), 1e9).nonfinite > 0);
    CHECK(norm_of(std::span<const float>(elements), 1e8).nonfinite == 0);
}

TEST_CASE("norm_partial: a square that overflows in double is no nonfinite element") {
    const std::vector<double> huge(100, 1e200);
    CHECK(norm_of(std::span<const double>(huge)).sum_of_squares == infinity);
    CHECK(norm_of(std::span<const double>(huge)).nonfinite == 0);
    const std::vector<float> large(100, 3e30F);
    // Scaled first, squared afterwards.
    const sk::detail::NormTotal scaled = norm_of(std::span<const float>(large), 0x1p-80);
    CHECK(scaled.sum_of_squares == doctest::Approx(100 * std::pow(3e30 * 0x1p-80, 2)).epsilon(1e-6));
    const std::vector<sk::fp16> halves(100, sk::fp16(65504.0F));
    CHECK(norm_of(std::span<const sk::fp16>(halves)).sum_of_squares ==
          doctest::Approx(100 * 65504.0 * 65504.0).epsilon(1e-6));
}

}  // namespace norm_partial_test
