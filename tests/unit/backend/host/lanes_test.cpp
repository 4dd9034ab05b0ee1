// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <concepts>
#include <cstddef>
#include <limits>
#include <vector>

#include <shardkit/backend/host/kernels.hpp>
#include <shardkit/core/lane_math.hpp>
#include <shardkit/optim/adamw.hpp>

#include "kernel_data.hpp"

namespace sk = shardkit;
namespace host = shardkit::host;
namespace test = shardkit::test;

namespace lanes_test {

namespace {

/// A whole number of the widest registers, so that the loops can be called directly.
constexpr std::size_t count = 64;

enum class InstructionSet { compiled, avx2 };

template <std::floating_point A, class F, class... S>
void run(InstructionSet set, const F& f, S... streams) {
    if (set == InstructionSet::avx2) {
        host::detail::avx2::run_lanes<A>(count, f, streams...);
    } else {
        host::detail::compiled::run_lanes<A>(count, f, streams...);
    }
}

template <class Master, class Gather, class Gradient>
struct AdamWResult {
    using A = sk::Arithmetic<Master>;
    std::vector<Master> master = test::random_elements<Master>(count, 1);
    std::vector<Gather> gathered = std::vector<Gather>(count);
    std::vector<Gradient> gradient = test::random_elements<Gradient>(count, 2);
    std::vector<A> exp_avg = test::random_elements<A>(count, 3);
    std::vector<A> exp_avg_sq = test::random_squares<A>(count, 4);

    explicit AdamWResult(InstructionSet set) {
        const auto update = sk::rules::adamw_update<A>({.learning_rate = 0.01}, 0.9, 0.999, 0.7);
        run<A>(
            set,
            [update](auto& p, auto g, auto& m, auto& v, auto& out) {
                update(p, m, v, g);
                out = p;
            },
            host::detail::InOut<Master>{master.data()}, host::detail::Input<Gradient>{gradient.data()},
            host::detail::InOut<A>{exp_avg.data()}, host::detail::InOut<A>{exp_avg_sq.data()},
            host::detail::Output<Gather>{gathered.data()});
    }
    bool operator==(const AdamWResult& other) const {
        return test::same_bits(master, other.master) && test::same_bits(gathered, other.gathered) &&
               test::same_bits(exp_avg, other.exp_avg) && test::same_bits(exp_avg_sq, other.exp_avg_sq);
    }
};

template <class... Types>
void check_same_bits_on_both() {
    CHECK(AdamWResult<Types...>(InstructionSet::compiled) == AdamWResult<Types...>(InstructionSet::avx2));
}

}  // namespace

TEST_CASE("lanes: the loop chosen at run time gives the bits of the one compiled for every machine") {
    if (!host::detail::use_avx2()) {
        MESSAGE("there is one loop only: no AVX2, or compiled for it");
        return;
    }
    check_same_bits_on_both<float, float, float>();
    check_same_bits_on_both<double, double, double>();
    check_same_bits_on_both<float, sk::bf16, sk::bf16>();
    check_same_bits_on_both<float, sk::fp16, sk::fp16>();
    check_same_bits_on_both<sk::bf16, float, double>();
    check_same_bits_on_both<double, sk::fp16, float>();
}

TEST_CASE_TEMPLATE("lanes: sums of packs do not depend on the width of the registers", T, double, float, sk::bf16,
                   sk::fp16) {
    if (!host::detail::use_avx2()) { return; }
    using A = sk::Arithmetic<T>;
    const sk::detail::SquaredTerm<A> term{sk::rules::Factor<A>(0.3)};
    constexpr std::size_t packs = 50;
    const auto elements = test::random_elements<T>(packs * host::detail::pack_elements<T> + 1, 5);
    const T* const first = elements.data() + 1;
    std::vector<A> sums(packs);
    std::vector<A> others(packs);
    host::detail::compiled::pack_sums<A>(first, packs, term, sums.data());
    host::detail::avx2::pack_sums<A>(first, packs, term, others.data());
    CHECK(test::same_bits(sums, others));
}

TEST_CASE_TEMPLATE("lanes: sums that are added as integers do not depend on the width of the registers", A, double,
                   float) {
    auto sums = test::random_squares<A>(host::detail::near_sums, 7);
    for (A& sum : sums) { sum += A{0x1p-20}; }
    sums[3] = sums[100] = 0;
    const auto same = [](const host::detail::NearSum& a, const host::detail::NearSum& b) {
        return a.low == b.low && a.high == b.high && a.shifts == b.shifts;
    };
    CHECK(same(host::detail::compiled::add_near<true>(sums.data(), 1000),
               host::detail::near_sum<true>(sums.data(), 1000)));
    sums[3] = sums[100] = 1;
    CHECK(same(host::detail::compiled::add_near<false>(sums.data(), 1000),
               host::detail::near_sum<false>(sums.data(), 1000)));
    CHECK(same(host::detail::near_sum<true>(sums.data(), 1000), host::detail::near_sum<false>(sums.data(), 1000)));
}

TEST_CASE_TEMPLATE("lanes: square roots are the correctly rounded ones", A, float, double) {
    for (const InstructionSet set : {InstructionSet::compiled, InstructionSet::avx2}) {
        if (set == InstructionSet::avx2 && !host::detail::use_avx2()) { continue; }
        auto values = test::random_squares<A>(count, 6);
        values[0] = 0;
        values[1] = std::numeric_limits<A>::denorm_min();
        values[2] = std::numeric_limits<A>::infinity();
        values[3] = std::numeric_limits<A>::max();
        std::vector<A> roots(count);
        run<A>(
            set,
            [](auto value, auto& root) {
                using shardkit::rules::square_root;
                root = square_root(value);
            },
            host::detail::Input<A>{values.data()}, host::detail::Output<A>{roots.data()});
        for (std::size_t i = 0; i < count; ++i) { CHECK(roots[i] == std::sqrt(values[i])); }
    }
}

namespace {

/// Below, between and above: what the comparisons of a functor on values say, lane by lane.
struct Clamped {
    template <class V>
    void operator()(V value, V bound, V& result) const {
        using sk::rules::select;
        const V small = select(value < bound, value, bound);
        const V large = select(value > bound, value, bound);
        result = select(value > 0, small, select(value < 0, large, V(-1)));
    }
};

}  // namespace

TEST_CASE_TEMPLATE("lanes: comparisons and select do what they do on values, NaN and both zeros included", A, float,
                   double) {
    for (const InstructionSet set : {InstructionSet::compiled, InstructionSet::avx2}) {
        if (set == InstructionSet::avx2 && !host::detail::use_avx2()) { continue; }
        auto values = test::random_elements<A>(count, 6);
        auto bounds = test::random_elements<A>(count, 7);
        values[0] = std::numeric_limits<A>::quiet_NaN();
        values[1] = -A{0};
        values[2] = A{0};
        values[3] = std::numeric_limits<A>::infinity();
        values[4] = -std::numeric_limits<A>::infinity();
        values[5] = bounds[5];
        bounds[6] = std::numeric_limits<A>::quiet_NaN();
        std::vector<A> results(count);
        run<A>(
            set, [](auto value, auto bound, auto& result) { Clamped{}(value, bound, result); },
            host::detail::Input<A>{values.data()}, host::detail::Input<A>{bounds.data()},
            host::detail::Output<A>{results.data()});
        std::vector<A> expected(count);
        for (std::size_t i = 0; i < count; ++i) { Clamped{}(values[i], bounds[i], expected[i]); }
        CHECK(test::same_bits(results, expected));
        CHECK(results[0] == -1);
        CHECK(results[2] == -1);
        CHECK(results[3] == bounds[3]);
    }
}

namespace {

/// Every operator that a functor may use, with constants on both sides.
template <class A>
struct EachOperator {
    template <class V>
    void operator()(V a, V b, V& result) const {
        const V sums = (a + b) - (a + A{3}) * (A{5} + b);
        const V quotients = (a / (A{2} + b * b) + A{7} / (a * a + A{1})) - (b / A{4} - A{0.5} * a);
        result = (sums - A{9}) + (A{11} - quotients) * A{0.25};
    }
};

}  // namespace

TEST_CASE_TEMPLATE("lanes: operators do what they do on values", A, float, double) {
    for (const InstructionSet set : {InstructionSet::compiled, InstructionSet::avx2}) {
        if (set == InstructionSet::avx2 && !host::detail::use_avx2()) { continue; }
        const auto a = test::random_elements<A>(count, 8);
        const auto b = test::random_elements<A>(count, 9);
        std::vector<A> results(count);
        run<A>(
            set, [](auto x, auto y, auto& result) { EachOperator<A>{}(x, y, result); },
            host::detail::Input<A>{a.data()}, host::detail::Input<A>{b.data()},
            host::detail::Output<A>{results.data()});
        for (std::size_t i = 0; i < count; ++i) {
            A expected = 0;
            EachOperator<A>{}(a[i], b[i], expected);
            CHECK(results[i] == doctest::Approx(expected).epsilon(sizeof(A) == 4 ? 1e-5 : 1e-13));
        }
    }
}

}  // namespace lanes_test
