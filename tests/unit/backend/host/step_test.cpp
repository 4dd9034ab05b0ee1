// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <shardkit/backend/host/kernels.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/sgd.hpp>

#include "kernel_data.hpp"

namespace sk = shardkit;
namespace test = shardkit::test;

namespace {

/// How much of a state a call is given: the whole, or a part that starts anywhere.
struct Range {
    std::size_t first;
    std::size_t count;
};

enum class Gathered { in_master, written };

template <class Master, class Gather, class Gradient>
struct AdamWState {
    using A = sk::Arithmetic<Master>;
    std::vector<Master> master;
    std::vector<Gather> gathered;
    std::vector<Gradient> gradient;
    std::vector<A> exp_avg;
    std::vector<A> exp_avg_sq;

    explicit AdamWState(std::size_t count)
        : master(test::random_elements<Master>(count, 1)),
          gathered(count, test::rounded<Gather>(-77)),
          gradient(test::random_elements<Gradient>(count, 2)),
          exp_avg(test::random_elements<A>(count, 3)),
          exp_avg_sq(test::random_squares<A>(count, 4)) {}

    void step(const sk::AdamWUpdate<A>& update, Range r, Gathered where = Gathered::written) {
        const auto part = [&](auto& all) { return std::span(all).subspan(r.first, r.count); };
        sk::UpdateSpans<Master, Gather, Gradient, 2> spans{
            part(master), part(gathered), part(gradient), {part(exp_avg), part(exp_avg_sq)}};
        if (where == Gathered::in_master) { spans.gathered = {}; }
        sk::HostKernels::update({}, update, spans);
    }
    bool operator==(const AdamWState& other) const {
        return test::same_bits(master, other.master) && test::same_bits(gathered, other.gathered) &&
               test::same_bits(exp_avg, other.exp_avg) && test::same_bits(exp_avg_sq, other.exp_avg_sq);
    }
};

template <class Master, class Gather, class Gradient>
struct SgdState {
    using A = sk::Arithmetic<Master>;
    std::vector<Master> master;
    std::vector<Gather> gathered;
    std::vector<Gradient> gradient;
    std::vector<A> buffer;

    explicit SgdState(std::size_t count)
        : master(test::random_elements<Master>(count, 1)),
          gathered(count, test::rounded<Gather>(-77)),
          gradient(test::random_elements<Gradient>(count, 2)),
          buffer(test::random_elements<A>(count, 3)) {}

    void step(const sk::SgdUpdate<A>& update, Range r, Gathered where = Gathered::written) {
        const auto part = [&](auto& all) { return std::span(all).subspan(r.first, r.count); };
        const std::span<Gather> copy = where == Gathered::in_master ? std::span<Gather>() : part(gathered);
        if (update.rule == sk::Momentum::none) {
            sk::HostKernels::update(
                {}, update, sk::UpdateSpans<Master, Gather, Gradient, 0>{part(master), copy, part(gradient), {}});
        } else {
            sk::HostKernels::update(
                {}, update,
                sk::UpdateSpans<Master, Gather, Gradient, 1>{part(master), copy, part(gradient), {part(buffer)}});
        }
    }
    bool operator==(const SgdState& other) const {
        return test::same_bits(master, other.master) && test::same_bits(gathered, other.gathered) &&
               test::same_bits(buffer, other.buffer);
    }
};

template <class A>
sk::AdamWUpdate<A> some_adamw() {
    return sk::adamw_update<A>({.learning_rate = 0.01, .weight_decay = 0.1}, 0.9 * 0.9, 0.999 * 0.999, 0.7);
}

template <class A>
sk::SgdUpdate<A> some_sgd(sk::Momentum rule) {
    return sk::sgd_update<A>({.learning_rate = 0.01, .rule = rule, .momentum = 0.9, .weight_decay = 0.1}, 0.7);
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
template <class Master, class Gather, class Gradient>
void check_adamw_against_scalar() {
    using A = sk::Arithmetic<Master>;
    const auto update = some_adamw<A>();
    const AdamWState<Master, Gather, Gradient> before(odd_count);
    auto after = before;
    after.step(update, {0, odd_count});
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < odd_count; ++i) {
        A p = static_cast<A>(before.master[i]);
        A m = before.exp_avg[i];
        A v = before.exp_avg_sq[i];
        update(p, m, v, static_cast<A>(test::widened(before.gradient[i])));
        wrong += !close(static_cast<A>(after.master[i]), static_cast<A>(static_cast<Master>(p)),
                        0.1 + storage_unit<Master>() / 0x1p-21 * std::fabs(double(p)));
        wrong += !close(after.exp_avg[i], m, 1) || !close(after.exp_avg_sq[i], v, 1);
        wrong +=
            test::widened(after.gathered[i]) != test::widened(test::rounded<Gather>(test::widened(after.master[i])));
    }
    CHECK(wrong == 0);
}

template <class Master, class Gather, class Gradient>
void check_sgd_against_scalar(sk::Momentum rule) {
    using A = sk::Arithmetic<Master>;
    const auto update = some_sgd<A>(rule);
    const SgdState<Master, Gather, Gradient> before(odd_count);
    auto after = before;
    after.step(update, {0, odd_count});
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < odd_count; ++i) {
        A p = static_cast<A>(before.master[i]);
        A b = before.buffer[i];
        const A g = static_cast<A>(test::widened(before.gradient[i]));
        if (rule == sk::Momentum::none) {
            update(p, g);
        } else {
            update(p, b, g);
        }
        wrong += !close(static_cast<A>(after.master[i]), static_cast<A>(static_cast<Master>(p)),
                        1 + storage_unit<Master>() / 0x1p-21 * std::fabs(double(p)));
        wrong += !close(after.buffer[i], b, 10);
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
    check_adamw_against_scalar<Master, Gather, Gradient>();
    for (const auto rule : {sk::Momentum::none, sk::Momentum::classical, sk::Momentum::nesterov}) {
        check_sgd_against_scalar<Master, Gather, Gradient>(rule);
    }
}

/// Every gather type with a gradient type; over the four masters every pair of types meets once.
template <class Master, class G0, class G1, class G2, class G3>
void check_pairs() {
    check_against_scalar<Master, double, G0>();
    check_against_scalar<Master, float, G1>();
    check_against_scalar<Master, sk::bf16, G2>();
    check_against_scalar<Master, sk::fp16, G3>();
}

}  // namespace

TEST_CASE("adamw, sgd: every pair of master, gather and gradient types against the scalar functor") {
    check_pairs<double, double, float, sk::bf16, sk::fp16>();
    check_pairs<float, float, sk::bf16, sk::fp16, double>();
    check_pairs<sk::bf16, sk::bf16, sk::fp16, double, float>();
    check_pairs<sk::fp16, sk::fp16, double, float, sk::bf16>();
}

TEST_CASE("adamw, sgd: the combinations that training uses against the scalar functor") {
    check_against_scalar<float, float, float>();
    check_against_scalar<float, sk::bf16, sk::bf16>();
    check_against_scalar<float, sk::fp16, sk::fp16>();
    check_against_scalar<float, sk::bf16, float>();
}

TEST_CASE("adamw: an element's bits do not depend on its position in the span") {
    check_independent_of_position<AdamWState<float, float, float>>(some_adamw<float>());
    check_independent_of_position<AdamWState<double, double, double>>(some_adamw<double>());
    check_independent_of_position<AdamWState<float, sk::bf16, float>>(some_adamw<float>());
    check_independent_of_position<AdamWState<float, sk::fp16, sk::fp16>>(some_adamw<float>());
    check_independent_of_position<AdamWState<sk::bf16, sk::bf16, sk::bf16>>(some_adamw<float>());
    check_independent_of_position<AdamWState<double, sk::bf16, float>>(some_adamw<double>());
}

TEST_CASE("sgd: an element's bits do not depend on its position in the span") {
    for (const auto rule : {sk::Momentum::none, sk::Momentum::classical, sk::Momentum::nesterov}) {
        check_independent_of_position<SgdState<float, float, float>>(some_sgd<float>(rule));
        check_independent_of_position<SgdState<double, double, double>>(some_sgd<double>(rule));
        check_independent_of_position<SgdState<float, sk::bf16, sk::bf16>>(some_sgd<float>(rule));
    }
}

TEST_CASE_TEMPLATE("adamw, sgd: a master that is the gather source gets the bits of one that is copied", T, double,
                   float, sk::bf16, sk::fp16) {
    using A = sk::Arithmetic<T>;
    AdamWState<T, T, T> written(odd_count);
    AdamWState<T, T, T> in_master(odd_count);
    written.step(some_adamw<A>(), {0, odd_count});
    in_master.step(some_adamw<A>(), {0, odd_count}, Gathered::in_master);
    CHECK(test::same_bits(written.master, in_master.master));
    CHECK(test::same_bits(written.gathered, written.master));
    CHECK(test::same_bits(written.exp_avg, in_master.exp_avg));
    CHECK(test::same_bits(written.exp_avg_sq, in_master.exp_avg_sq));

    for (const auto rule : {sk::Momentum::none, sk::Momentum::classical, sk::Momentum::nesterov}) {
        SgdState<T, T, T> a(odd_count);
        SgdState<T, T, T> b(odd_count);
        a.step(some_sgd<A>(rule), {0, odd_count});
        b.step(some_sgd<A>(rule), {0, odd_count}, Gathered::in_master);
        CHECK(test::same_bits(a.master, b.master));
        CHECK(test::same_bits(a.gathered, a.master));
        CHECK(test::same_bits(a.buffer, b.buffer));
    }
}

TEST_CASE("adamw, sgd: nothing outside the spans is touched, and empty spans are fine") {
    const AdamWState<float, sk::bf16, float> before(odd_count);
    auto after = before;
    after.step(some_adamw<float>(), {17, 0});
    CHECK(after == before);
    after.step(some_adamw<float>(), {17, 45});
    std::size_t changed_outside = 0;
    std::size_t unchanged_inside = 0;
    for (std::size_t i = 0; i < odd_count; ++i) {
        const bool same_master = after.master[i] == before.master[i];
        const bool same_gathered = after.gathered[i] == before.gathered[i];
        const bool same_state = after.exp_avg[i] == before.exp_avg[i] && after.exp_avg_sq[i] == before.exp_avg_sq[i];
        if (i >= 17 && i < 62) {
            unchanged_inside += same_master || same_gathered || same_state;
        } else {
            changed_outside += !same_master || !same_gathered || !same_state;
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
        sk::HostKernels::update(
            {}, sk::adamw_update<float>({.learning_rate = 1e-4, .weight_decay = 0}, power1, power2, 1),
            sk::UpdateSpans<float, sk::bf16, sk::bf16, 2>{master, gathered, gradient, {exp_avg, exp_avg_sq}});
        if (step == 1) { CHECK(gathered[8] == sk::bf16(1.0F)); }
    }
    // A constant gradient moves each parameter by one learning rate per step.
    for (const float parameter : master) { CHECK(parameter == doctest::Approx(0.99).epsilon(1e-5)); }
    for (const sk::bf16 parameter : gathered) { CHECK(parameter == sk::bf16(0.99F)); }
}

TEST_CASE("adamw, sgd: sizes that disagree are named") {
    std::vector<float> five(5);
    std::vector<float> three(3);
    std::vector<sk::bf16> none;
    const auto update = some_adamw<float>();
    const auto message = [&](const auto& call) -> std::string {
        try {
            call();
        } catch (const std::invalid_argument& error) { return error.what(); }
        return "accepted";
    };
    using Spans = sk::UpdateSpans<float, float, float, 2>;
    CHECK(message([&] {
              sk::HostKernels::update({}, update, Spans{five, five, three, {five, five}});
          }) == "HostKernels::update: gradient has 3 elements, expected 5");
    CHECK(message([&] {
              sk::HostKernels::update({}, update, Spans{five, {}, five, {three, five}});
          }) == "HostKernels::update: a state has 3 elements, expected 5");
    CHECK(message([&] {
              sk::HostKernels::update({}, update, Spans{five, {}, five, {five, three}});
          }) == "HostKernels::update: a state has 3 elements, expected 5");
    CHECK(message([&] {
              sk::HostKernels::update({}, update, Spans{five, three, five, {five, five}});
          }) == "HostKernels::update: gathered has 3 elements, expected 5");
    // Another type than the master's cannot be the master, so it must be given.
    CHECK(message([&] {
              sk::HostKernels::update({}, update,
                                      sk::UpdateSpans<float, sk::bf16, float, 2>{five, none, five, {five, five}});
          }) == "HostKernels::update: gathered has 0 elements, expected 5");
    CHECK(message([&] {
              sk::HostKernels::update({}, some_sgd<float>(sk::Momentum::classical),
                                      sk::UpdateSpans<float, float, float, 1>{five, {}, five, {}});
          }) == "HostKernels::update: a state has 0 elements, expected 5");
}
