// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <tuple>
#include <type_traits>
#include <vector>

#include <shardkit/backend/host/kernels.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/lion.hpp>
#include <shardkit/optim/sgd.hpp>

#include "enqueued_update.hpp"
#include "kernel_data.hpp"

namespace sk = shardkit;
namespace test = shardkit::test;

namespace step_test {

namespace {

/// How much of a state a call is given: the whole, or a part that starts anywhere.
struct Range {
    std::size_t first;
    std::size_t count;
};

template <class Master, class Gather, class Gradient, std::size_t StateCount>
struct State {
    using A = sk::Arithmetic<Master>;
    std::vector<Master> master;
    std::vector<Gather> gathered;
    std::vector<Gradient> gradient;
    std::array<std::vector<A>, StateCount> states;  // from the second on not negative

    explicit State(std::size_t count)
        : master(test::random_elements<Master>(count, 1)),
          gathered(count, test::rounded<Gather>(-77)),
          gradient(test::random_elements<Gradient>(count, 2)) {
        for (std::size_t s = 0; s < StateCount; ++s) {
            const auto seed = static_cast<std::uint32_t>(3 + s);
            states[s] = s == 0 ? test::random_elements<A>(count, seed) : test::random_squares<A>(count, seed);
        }
    }

    template <class Update>
    void step(const Update& update, Range r) {
        const auto part = [&](auto& all) { return std::span(all).subspan(r.first, r.count); };
        sk::rules::UpdateSpans<Master, Gather, Gradient, StateCount> spans{
            part(master), part(gathered), part(gradient), {}};
        for (std::size_t s = 0; s < StateCount; ++s) { spans.states[s] = part(states[s]); }
        const std::uint32_t skip = 0;
        const sk::rules::UpdateRange range{0, r.count, 0};
        test::update_on_host(std::span(&range, 1), &update, &skip, spans);
        if constexpr (std::is_same_v<Master, Gather>) { std::ranges::copy(part(master), part(gathered).begin()); }
    }
    bool same_states(const State& other) const {
        bool same = true;
        for (std::size_t s = 0; s < StateCount; ++s) { same = same && test::same_bits(states[s], other.states[s]); }
        return same;
    }
    bool operator==(const State& other) const {
        return test::same_bits(master, other.master) && test::same_bits(gathered, other.gathered) &&
               same_states(other);
    }
};

template <class A>
sk::rules::AdamWUpdate<A> some_adamw() {
    return sk::rules::adamw_update<A>({.learning_rate = 0.01, .weight_decay = 0.1}, 0.9 * 0.9, 0.999 * 0.999, 0.7);
}

template <class A>
sk::rules::SgdUpdate<A> some_sgd(sk::Momentum rule) {
    return sk::rules::sgd_update<A>({.learning_rate = 0.01, .rule = rule, .momentum = 0.9, .weight_decay = 0.1}, 0.7);
}

template <class A>
sk::rules::LionUpdate<A> some_lion() {
    return sk::rules::lion_update<A>({.learning_rate = 0.01, .weight_decay = 0.1}, 0.7);
}

/// check(a function that makes the update for A, number of states) for every optimizer.
template <class Check>
void each_optimizer(const Check& check) {
    using One = std::integral_constant<std::size_t, 1>;
    check([]<class A>(A) { return some_adamw<A>(); }, std::integral_constant<std::size_t, 2>{});
    check([]<class A>(A) { return some_sgd<A>(sk::Momentum::none); }, std::integral_constant<std::size_t, 0>{});
    check([]<class A>(A) { return some_sgd<A>(sk::Momentum::classical); }, One{});
    check([]<class A>(A) { return some_sgd<A>(sk::Momentum::nesterov); }, One{});
    check([]<class A>(A) { return some_lion<A>(); }, One{});
}

/// Relative to the larger of the two and to `scale`, the size of the terms: rounding may differ where the
/// compiler fuses a product and a sum in one of the two programs.
template <class A>
bool close(A given, A expected, double scale) {
    const double unit = sizeof(A) == 4 ? 0x1p-21 : 0x1p-50;
    return std::fabs(double(given) - double(expected)) <= unit * (std::fabs(double(expected)) + scale);
}

/// One unit in the last place of a 16-bit number covers a rounding boundary between two close values.
template <class T>
double storage_unit() {
    return sizeof(T) == 2 ? 0x1p-7 : 0;
}

constexpr std::size_t odd_count = 131;

/// The pass does what the functor does to one element after another; gathered[i] is master[i] as stored.
template <class Master, class Gather, class Gradient, std::size_t StateCount, class Update>
void check_update_against_scalar(const Update& update) {
    using A = sk::Arithmetic<Master>;
    constexpr double step_scale = StateCount == 2 ? 0.1 : 1;  // of what is taken from a parameter
    constexpr double state_scale = StateCount == 2 ? 1 : 10;  // of the terms of a state
    const State<Master, Gather, Gradient, StateCount> before(odd_count);
    auto after = before;
    after.step(update, {0, odd_count});
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < odd_count; ++i) {
        A p = static_cast<A>(before.master[i]);
        std::array<A, StateCount> states{};
        for (std::size_t s = 0; s < StateCount; ++s) { states[s] = before.states[s][i]; }
        std::apply([&](auto&... state) { update(p, state..., static_cast<A>(test::widened(before.gradient[i]))); },
                   states);
        wrong += !close(static_cast<A>(after.master[i]), static_cast<A>(static_cast<Master>(p)),
                        step_scale + storage_unit<Master>() / 0x1p-21 * std::fabs(double(p)));
        for (std::size_t s = 0; s < StateCount; ++s) { wrong += !close(after.states[s][i], states[s], state_scale); }
        wrong +=
            test::widened(after.gathered[i]) != test::widened(test::rounded<Gather>(test::widened(after.master[i])));
    }
    CHECK(wrong == 0);
}

/// A shard of any boundaries gets the bits that the whole gets: bulk and tail, aligned or not, agree.
template <class State, class Update>
void check_independent_of_position(const Update& update) {
    State whole(odd_count);
    whole.step(update, {0, odd_count});
    for (const std::size_t piece : {1U, 2U, 3U, 5U, 7U, 8U, 13U, 16U, 31U, 64U, 130U}) {
        CAPTURE(piece);
        State sharded(odd_count);
        for (std::size_t first = 0; first < odd_count; first += piece) {
            sharded.step(update, {first, std::min(piece, odd_count - first)});
        }
        CHECK(sharded == whole);
    }
}

template <class Master, class Gather, class Gradient>
void check_against_scalar() {
    each_optimizer([]<std::size_t StateCount>(auto make, std::integral_constant<std::size_t, StateCount>) {
        check_update_against_scalar<Master, Gather, Gradient, StateCount>(make(sk::Arithmetic<Master>{}));
    });
}
template <class Master, class Gather, class Gradient>
void check_adamw_against_scalar() {
    check_update_against_scalar<Master, Gather, Gradient, 2>(some_adamw<sk::Arithmetic<Master>>());
}

/// Every gather type with a gradient type; over the four masters every pair of types meets once.
template <class Master, class G0, class G1, class G2, class G3>
void check_pairs() {
    check_adamw_against_scalar<Master, double, G0>();
    check_adamw_against_scalar<Master, float, G1>();
    check_adamw_against_scalar<Master, sk::bf16, G2>();
    check_adamw_against_scalar<Master, sk::fp16, G3>();
}

}  // namespace

// What is read and written is one function for all optimizers: every pair of types with one of them.
TEST_CASE("update: every pair of master, gather and gradient types against the scalar functor") {
    check_pairs<double, double, float, sk::bf16, sk::fp16>();
    check_pairs<float, float, sk::bf16, sk::fp16, double>();
    check_pairs<sk::bf16, sk::bf16, sk::fp16, double, float>();
    check_pairs<sk::fp16, sk::fp16, double, float, sk::bf16>();
}

TEST_CASE("update: the combinations that training uses against the scalar functor") {
    check_against_scalar<float, float, float>();
    check_against_scalar<float, sk::bf16, sk::bf16>();
    check_against_scalar<double, double, double>();
    check_adamw_against_scalar<float, sk::fp16, sk::fp16>();
    check_adamw_against_scalar<float, sk::bf16, float>();
}

TEST_CASE("update: an element's bits do not depend on its position in the span") {
    each_optimizer([]<std::size_t N>(auto make, std::integral_constant<std::size_t, N>) {
        check_independent_of_position<State<float, float, float, N>>(make(0.0F));
        check_independent_of_position<State<double, double, double, N>>(make(0.0));
        check_independent_of_position<State<float, sk::bf16, sk::bf16, N>>(make(0.0F));
    });
    check_independent_of_position<State<float, sk::bf16, float, 2>>(some_adamw<float>());
    check_independent_of_position<State<float, sk::fp16, sk::fp16, 2>>(some_adamw<float>());
    check_independent_of_position<State<sk::bf16, sk::bf16, sk::bf16, 2>>(some_adamw<float>());
    check_independent_of_position<State<double, sk::bf16, float, 2>>(some_adamw<double>());
}

TEST_CASE("update: nothing outside the spans is touched, and empty spans are fine") {
    const State<float, sk::bf16, float, 2> before(odd_count);
    auto after = before;
    after.step(some_adamw<float>(), {17, 0});
    CHECK(after == before);
    after.step(some_adamw<float>(), {17, 45});
    std::size_t changed_outside = 0;
    std::size_t unchanged_inside = 0;
    for (std::size_t i = 0; i < odd_count; ++i) {
        const bool same_master = after.master[i] == before.master[i];
        const bool same_gathered = after.gathered[i] == before.gathered[i];
        const bool same_first = after.states[0][i] == before.states[0][i];
        const bool same_second = after.states[1][i] == before.states[1][i];
        if (i >= 17 && i < 62) {
            unchanged_inside += same_master || same_gathered || (same_first && same_second);
        } else {
            changed_outside += !same_master || !same_gathered || !same_first || !same_second;
        }
    }
    CHECK(changed_outside == 0);
    CHECK(unchanged_inside == 0);
}

TEST_CASE("adamw: a 16-bit gathered copy of an fp32 master keeps small steps that the copy alone would lose") {
    std::vector<float> master(9, 1.0F);
    std::vector<sk::bf16> gathered(9);
    const std::vector<sk::bf16> gradient(9, sk::bf16(1.0F));
    std::vector<float> exp_avg(9);
    std::vector<float> exp_avg_sq(9);
    double power1 = 1;
    double power2 = 1;
    for (int step = 1; step <= 100; ++step) {
        power1 *= 0.9;
        power2 *= 0.999;
        const auto update =
            sk::rules::adamw_update<float>({.learning_rate = 1e-4, .weight_decay = 0}, power1, power2, 1);
        const std::uint32_t skip = 0;
        const sk::rules::UpdateRange range{0, master.size(), 0};
        test::update_on_host(
            std::span(&range, 1), &update, &skip,
            sk::rules::UpdateSpans<float, sk::bf16, sk::bf16, 2>{master, gathered, gradient, {exp_avg, exp_avg_sq}});
        if (step == 1) { CHECK(gathered[8] == sk::bf16(1.0F)); }
    }
    // A constant gradient moves each parameter by one learning rate per step.
    for (const float parameter : master) { CHECK(parameter == doctest::Approx(0.99).epsilon(1e-5)); }
    for (const sk::bf16 parameter : gathered) { CHECK(parameter == sk::bf16(0.99F)); }
}

namespace {

/// AdamW as a loop knows it that does not ask for the scale.
template <class A>
struct ScaledAdamW {
    sk::rules::AdamWUpdate<A> adamw;

    template <class V>
    [[gnu::always_inline]] constexpr void operator()(V& parameter, V& exp_avg, V& exp_avg_sq, V gradient) const {
        adamw(parameter, exp_avg, exp_avg_sq, gradient);
    }
};

template <class Master, class Gather, class Gradient>
void check_unscaled() {
    using A = sk::Arithmetic<Master>;
    State<Master, Gather, Gradient, 2> before(odd_count);
    using Limits = std::numeric_limits<A>;
    const A special[] = {Limits::infinity(),   -Limits::infinity(),   Limits::quiet_NaN(), A(-0.0),
                         Limits::denorm_min(), -Limits::denorm_min(), Limits::min(),       Limits::max()};
    for (std::size_t i = 0; i < std::size(special); ++i) {
        before.gradient[3 + 15 * i] = test::rounded<Gradient>(static_cast<double>(special[i]));
    }
    for (const double scale : {1.0, 0.5, 0x1p-140}) {
        CAPTURE(scale);
        const auto update =
            sk::rules::adamw_update<A>({.learning_rate = 0.01, .weight_decay = 0.1}, 0.9 * 0.9, 0.999 * 0.999, scale);
        auto after = before;
        after.step(update, {0, odd_count});
        auto expected = before;
        expected.step(ScaledAdamW<A>{update}, {0, odd_count});
        CHECK(after == expected);
        CHECK_FALSE(after.same_states(before));
    }
}

}  // namespace

TEST_CASE("adamw: a gradient scale of 1, whose products are left out, gives the bits that they would") {
    check_unscaled<float, float, float>();
    check_unscaled<double, double, double>();
    check_unscaled<float, sk::bf16, sk::bf16>();
    check_unscaled<float, sk::fp16, sk::fp16>();
}

}  // namespace step_test
