// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <shardkit/comm/stream.hpp>

#include "../../../test_size.hpp"
#include "../host/enqueued_kernels.hpp"
#include "each_precision.hpp"
#include "machine.hpp"
#include "norm_pieces.hpp"
#include "step_data.hpp"

namespace shardkit::test {

using shardkit::detail::NormSum;
using shardkit::detail::NormTotal;

/// The numbers that a sum travels as, with one square of `squares` and `nonfinite` elements in it.
inline std::vector<double> travelling(double squares = 0, std::int64_t nonfinite = 0) {
    NormSum sum;
    sum.squares.add(squares);
    sum.nonfinite = nonfinite;
    std::vector<double> numbers(NormSum::numbers);
    sum.add_to(numbers.data());
    return numbers;
}
template <class Numbers>
NormTotal total_of(const Numbers& numbers) {
    return NormSum(numbers.data()).total();
}

/// The total after one call.
template <class T, class M>
NormTotal norm_of(M& machine, const std::vector<T>& values, const std::vector<IndexRange>& segments, double scale,
                  std::size_t offset, const std::vector<double>& before = travelling()) {
    machine.clear();
    const auto gradient = array(machine, values, offset);
    const auto pieces = norm_pieces(gradient.view(), segments);
    const auto pieces_there = array(machine, pieces);
    const auto factor = array(machine, std::vector<double>{scale});
    const auto into = array(machine, before);
    M::Kernels::norm_partial(machine.stream(), pieces_there.view(), positions_of(pieces), factor.data(), into.data());
    return total_of(into.values());
}

template <class T>
NormTotal norm_on_host(const std::vector<T>& values, const std::vector<IndexRange>& segments, double scale) {
    std::vector<double> into = travelling();
    const auto pieces = norm_pieces(std::span<const T>(values), segments);
    test::EnqueuedKernels<shardkit::Stream>::norm_partial(
        shardkit::Stream{}, std::span<const engine::NormPiece<T>>(pieces), positions_of(pieces), &scale, into.data());
    return total_of(into);
}

/// Packs that begin elsewhere, and fused additions, round differently.
template <class T>
double norm_bound() {
    return 4 * static_cast<double>(std::numeric_limits<Arithmetic<T>>::epsilon());
}

template <class T, class M>
void check_norm_of(M& machine) {
    for (const std::size_t size : sizes()) {
        for (std::size_t offset = 0; offset < 9; offset += 1 + offset / 4) {
            for (const auto& runs : runs_of(size)) {
                const std::vector<T> values = random_elements<T>(size, 9);
                const auto segments = ranges_of(runs);
                const auto expected = norm_on_host(values, segments, 0.25);
                const auto got = norm_of(machine, values, segments, 0.25, offset);
                CHECK(std::abs(got.sum_of_squares - expected.sum_of_squares) <=
                      norm_bound<T>() * expected.sum_of_squares);
                CHECK(got.nonfinite == 0);
            }
        }
    }
}

/// The exact sum: powers of two, so that no addition rounds.
template <class T, class M>
void check_exact_norm(M& machine) {
    const std::vector<T> values(4099, rounded<T>(0.5));
    CHECK(norm_of(machine, values, {{0, 4099}}, 4.0, 1) == NormTotal{4 * 4099.0, 0});
    CHECK(norm_of(machine, values, {{7, 7}, {8, 11}, {4098, 4099}}, 4.0, 0, travelling(100, 2)) == NormTotal{116, 2});
    CHECK(norm_of(machine, values, {}, 4.0, 0, travelling(100, 2)) == NormTotal{100, 2});
    CHECK(norm_of(machine, std::vector<T>(), {{0, 0}}, 4.0, 0, travelling(100, 2)) == NormTotal{100, 2});
}

/// Any neighbours of a table alone.
template <class T, class M>
void check_norm_of_some_pieces(M& machine) {
    machine.clear();
    const auto elements = array(machine, std::vector<T>(5000, rounded<T>(0.5)), 3);
    const auto pieces = norm_pieces(elements.view(), {{0, 1}, {5, 2100}, {2100, 2107}, {2111, 5000}});
    REQUIRE(pieces.size() == 4);
    const auto there = array(machine, pieces);
    const auto factor = array(machine, std::vector<double>{2});
    for (std::size_t first = 0; first < 4; ++first) {
        double sum = 0;
        for (std::size_t last = first + 1; last <= 4; ++last) {
            sum += static_cast<double>(pieces[last - 1].end - pieces[last - 1].begin);
            const auto into = array(machine, travelling());
            M::Kernels::norm_partial(machine.stream(), there.view().subspan(first, last - first),
                                     positions_of(pieces, first, last), factor.data(), into.data());
            CHECK(total_of(into.values()) == NormTotal{sum, 0});
        }
    }
}

template <class T, class M>
void check_norm_not_finite(M& machine) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    for (const double bad : {infinity, -infinity, std::numeric_limits<double>::quiet_NaN()}) {
        for (const std::size_t where : {0U, 5U, 63U, 99U}) {
            std::vector<T> values = random_elements<T>(100, 10);
            values[where] = rounded<T>(bad);
            const auto got = norm_of(machine, values, {{0, 100}}, 1, 0);
            CHECK(got.nonfinite > 0);
            CHECK(std::isnan(got.sum_of_squares) == std::isnan(bad));
            CHECK(!std::isfinite(got.sum_of_squares));
            // Outside of the segments nobody looks.
            CHECK(norm_of(machine, values, {{0, where}, {where + 1, 100}}, 1, 0).nonfinite == 0);
        }
    }
    // Squares that overflow are not non-finite elements; those that fp32 does not hold are summed in double, at
    // either end of its range.
    const std::vector<T> large(10, rounded<T>(65504));
    const auto square = [&](double scale) {
        return std::pow(static_cast<double>(static_cast<shardkit::Arithmetic<T>>(large[0])) * scale, 2);
    };
    if constexpr (sizeof(T) == 8) {
        CHECK(norm_of(machine, large, {{0, 10}}, 1e200, 0) == NormTotal{infinity, 0});
    } else {
        for (const double scale : {1e-50, 1e-30, 1e-20, 1e16, 1e30}) {
            CAPTURE(scale);
            const auto got = norm_of(machine, large, {{0, 10}}, scale, 0);
            CHECK(got.sum_of_squares == doctest::Approx(10 * square(scale)).epsilon(1e-5));
            CHECK(got.nonfinite == 0);
        }
        // Finite, and infinite once scaled.
        CHECK(norm_of(machine, large, {{0, 10}}, 1e36, 0).nonfinite > 0);
    }
}

/// Whether a machine's compiler makes one instruction of a multiplication and an addition.
enum class Fuses : bool { no, yes };

/// Packs of every size from the smallest to the largest, zeros among them.
template <class T, class M>
void check_host_bits(M& machine, Fuses fuses) {
    constexpr std::size_t pack = 128 / sizeof(T);
    std::vector<T> values = random_elements<T>(301 * pack + 5, 12);
    for (std::size_t p = 0; p <= 301; ++p) {
        const double size = p % 7 == 0 ? 0 : std::ldexp(1, static_cast<int>(p * 37 % 20) - 10);
        for (std::size_t i = p * pack; i < std::min(values.size(), (p + 1) * pack); ++i) {
            // Powers of two, where fusing must not matter.
            const double value = static_cast<double>(static_cast<Arithmetic<T>>(values[i]));
            values[i] =
                rounded<T>(size * (fuses == Fuses::no ? value : std::exp2(std::round(std::log2(std::abs(value))))));
        }
    }
    const std::vector<IndexRange> segments{{0, 40 * pack}, {40 * pack, 64 * pack + 3}, {65 * pack, 301 * pack + 5}};
    CHECK(norm_of(machine, values, segments, 0.25, 0) == norm_on_host(values, segments, 0.25));
}

/// `repeats`: of what must give the same bits, in whatever order a machine's blocks come.
template <class M>
void check_norm(M& machine, int repeats, Fuses fuses) {
    SUBCASE("every size, start and way to cut into segments") {
        each_floating([&]<class T>(Type<T>) { check_norm_of<T>(machine); });
    }
    SUBCASE("exactly") {
        each_floating([&]<class T>(Type<T>) { check_exact_norm<T>(machine); });
    }
    SUBCASE("some pieces of a table") {
        each_floating([&]<class T>(Type<T>) { check_norm_of_some_pieces<T>(machine); });
    }
    SUBCASE("the host's bits, where pieces begin at 16 bytes") {
        each_floating([&]<class T>(Type<T>) { check_host_bits<T>(machine, fuses); });
    }
    SUBCASE("infinite and NaN elements") {
        each_floating([&]<class T>(Type<T>) { check_norm_not_finite<T>(machine); });
    }
    SUBCASE("the same bits on every run") {
        each_floating([&]<class T>(Type<T>) {
            const bool reduced = test_size::reduced();
            const std::vector<T> values = random_elements<T>(reduced ? 4'003 : 200'003, 11);
            const auto segments = ranges_of(runs_of(values.size()).back());
            const auto first = norm_of(machine, values, segments, 0.3, 1);
            for (int repeat = 0; repeat < repeats; ++repeat) {
                CHECK(norm_of(machine, values, segments, 0.3, 1) == first);
            }
        });
    }
}

}  // namespace shardkit::test
