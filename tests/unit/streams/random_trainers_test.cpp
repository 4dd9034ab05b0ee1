// SPDX-License-Identifier: Apache-2.0
// Trainers made at random on streams that run as late as they may, without a schedule and behind one: the bits of
// streams that run at once.

#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "lazy_rank.hpp"
#include "test_size.hpp"
#include "unit/schedule/random_trainer.hpp"

namespace random_trainers_test {

namespace {

namespace sk = shardkit;
using lazy::Pace;

/// `late`: bits for the compute, communication and reduction streams.
template <class Precision>
std::vector<double> seen(const random_trainer::Plan& plan, bool follows, std::size_t late) {
    const auto pace = [&](std::size_t bit) { return (late & bit) != 0 ? Pace::lazy : Pace::eager; };
    lazy::Rank rank(pace(1), pace(2), pace(4), {.in_flight = 64});
    return random_trainer::Trainer<Precision>(rank, plan).run(follows);
}

template <class Precision>
void check() {
    const std::uint64_t trainers = test_size::reduced() ? 10 : 50;
    for (std::uint64_t seed = 0; seed < trainers; ++seed) {
        CAPTURE(seed);
        const random_trainer::Plan plan = random_trainer::random_plan(seed, 1);
        const auto at_once = seen<Precision>(plan, false, 0);
        CHECK(at_once.size() > plan.programs.size());
        CHECK(seen<Precision>(plan, true, 0) == at_once);
        for (const std::size_t late : {1 + seed % 7, std::uint64_t{7}}) {
            CAPTURE(late);
            CHECK(seen<Precision>(plan, false, late) == at_once);
            CHECK(seen<Precision>(plan, true, late) == at_once);
        }
    }
}

}  // namespace

TEST_CASE("trainers made at random see the same bits on late streams, behind schedules too") {
    check<sk::Precision<double>>();
    check<sk::Precision<double, float, double, double>>();
}

}  // namespace random_trainers_test
