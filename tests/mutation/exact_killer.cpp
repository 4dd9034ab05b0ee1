// SPDX-License-Identifier: Apache-2.0
// The program that every mutant of exact sums and of the norm's must fail: sums with closed forms, which travel
// between ranks, and sums of squares of integers below 2^24, which integers hold.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include <shardkit/backend/host/kernels.hpp>
#include <shardkit/core/exact_sum.hpp>
#include <shardkit/kernels/norm_sum.hpp>

namespace sk = shardkit;

namespace {

void expect(const char* what, double given, double expected) {
    if (given == expected) { return; }
    std::printf("%s: %a, expected %a\n", what, given, expected);
    std::exit(1);
}

/// Each number is another rank's.
double sum_of(const std::vector<double>& values) {
    std::vector<double> numbers(sk::ExactSum::numbers);
    for (const double value : values) {
        sk::ExactSum of_rank;
        of_rank.add(value);
        of_rank.add_to(numbers.data());
    }
    return sk::ExactSum(numbers.data()).value();
}

template <class T>
void check_norms(const char* what) {
    constexpr std::size_t pack = 128 / sizeof(T);
    // In each pack one element or none, so that no pack's sum is rounded; their sizes from a window's end to the
    // other, and beyond.
    for (const int spread : {0, 3, 4, 6, 9, 12, 15, 16}) {
        const std::uint64_t factor = sizeof(T) == 8 && spread <= 3 ? 8191 : 1;  // squares with bits at both ends
        std::vector<T> elements(40'000 * pack);
        std::uint64_t expected = 0;
        for (std::size_t p = 0; p < 40'000; ++p) {
            if (spread % 2 == 0 && p % 5 == 0) { continue; }
            // 128 packs are added at a time; some of these blocks are far from the one before.
            const auto shift = spread == 16 ? p / 128 % 4 * 5 : p % 2 == 0 ? 0U : static_cast<std::uint64_t>(spread);
            const std::uint64_t value = factor * ((p * 7919) % 251 + 1) << shift;
            elements[p * pack + p % pack] = static_cast<T>(static_cast<float>(value));
            expected += value * value;
        }
        sk::detail::NormSum sum;
        sk::detail::HostKernels::norm_partial({}, std::span<const T>(elements), 1, sum);
        std::vector<double> numbers(sk::detail::NormSum::numbers);
        sum.add_to(numbers.data());
        expect(what, sk::detail::NormSum(numbers.data()).total().sum_of_squares, static_cast<double>(expected));
    }
}

}  // namespace

int main() {
    for (int exponent = -1074; exponent <= 971; ++exponent) {
        const double unit = std::ldexp(1.0, exponent);
        expect("one and its last bit", sum_of({unit, unit * 0x1p52, -unit}), unit * 0x1p52);
        expect("a tie to even, down", sum_of({unit * 0x1p52, unit * 0.5}), unit * 0x1p52);
        expect("a tie to even, up", sum_of({unit * (0x1p52 + 1), unit * 0.5}),
               unit * (0x1p52 + (unit * 0.5 > 0 ? 2 : 1)));
        if (exponent > -1073) {
            expect("more than half", sum_of({unit * 0x1p52, unit * 0.5, 0x1p-1074}), unit * (0x1p52 + 1));
        }
        expect("a negative sum", sum_of({-unit * 0x1p52, unit * 3, -unit}), -unit * (0x1p52 - 2));
    }
    std::vector<double> ones(70'000, 0x1p31);
    expect("a digit that runs over", sum_of(ones), 70'000 * 0x1p31);
    const double infinity = HUGE_VAL;
    expect("infinity", sum_of({infinity, 1}), infinity);
    expect("minus infinity", sum_of({1, -infinity}), -infinity);
    if (!std::isnan(sum_of({infinity, -infinity})) || !std::isnan(sum_of({std::nan(""), 1}))) {
        std::puts("a NaN that is none");
        return 1;
    }
    check_norms<float>("a norm in fp32");
    check_norms<double>("a norm in fp64");
    std::puts("exact sums are exact");
}
