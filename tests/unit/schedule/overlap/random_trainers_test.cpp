// SPDX-License-Identifier: Apache-2.0
// Trainers made at random, as they are and behind schedules made of what they recorded: equal bits with overlap
// and without.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "test_size.hpp"
#include "unit/backend/overlaps.hpp"
#include "unit/schedule/random_trainer.hpp"

namespace random_trainers_test {

namespace {

namespace sk = shardkit;
using sk::threads::LaunchOptions;

std::vector<std::vector<double>> seen(const random_trainer::Plan& plan, bool follows, const LaunchOptions& options) {
    std::vector<std::vector<double>> all(plan.ranks);
    const auto on_rank = [&](auto& rank) {
        all[rank.rank()] = random_trainer::Trainer<sk::Precision<float>>(rank, plan).run(follows);
    };
    sk::threads::run(sk::DeviceMesh<sk::dynamic>(plan.ranks), on_rank, {.in_flight = 64}, options);
    return all;
}

}  // namespace

TEST_CASE("overlap: trainers made at random see the same bits behind every schedule that is made of them") {
    const std::uint64_t trainers = test_size::reduced() ? 16 : 60;
    for (std::uint64_t seed = 0; seed < trainers; ++seed) {
        CAPTURE(seed);
        const random_trainer::Plan plan = random_trainer::random_plan(seed, 5);
        const auto plain = seen(plan, false, {});
        CHECK(std::ranges::none_of(plain[0], [](double value) { return std::isnan(value); }));
        CHECK(seen(plan, true, {}) == plain);
        CHECK(seen(plan, true, rank_checks::on_threads) == plain);
    }
}

}  // namespace random_trainers_test
