// SPDX-License-Identifier: Apache-2.0
// What a round of several ranks took, and whose turn it is.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "../../benchmarks/common/measure.hpp"

namespace interval_test {

namespace {

using namespace benchmarks;

}  // namespace

TEST_CASE("a round goes from the first rank's begin to the last one's end, and over several clocks by the longest") {
    shardkit::threads::run(shardkit::DeviceMesh<3>{}, [](shardkit::Rank& rank) {
        // Rank by rank as if there were one processor; then all at once.
        const auto r = static_cast<std::int64_t>(rank.rank());
        constexpr std::int64_t started = std::int64_t{1} << 50U;  // a machine that runs for two weeks
        const std::array<Interval, 2> own{Interval{started + 100 * r, started + 100 * (r + 1)},
                                          Interval{started + r, started + 500 - r}};
        const auto one = world_seconds(rank, std::span<const Interval>(own), 7);
        REQUIRE(one.size() == 2);
        CHECK(one[0] == doctest::Approx(300e-9));
        CHECK(one[1] == doctest::Approx(500e-9));
        const auto several = world_seconds(rank, std::span<const Interval>(own), 7 + r);
        REQUIRE(several.size() == 2);
        CHECK(several[0] == doctest::Approx(100e-9));
        CHECK(several[1] == doctest::Approx(500e-9));
    });
}

TEST_CASE("no rank begins before all have come, and ranks of one process read one clock") {
    CHECK(clock_id() > 0);
    CHECK(clock_id() == clock_id());
    shardkit::threads::run(shardkit::DeviceMesh<4>{}, [](shardkit::Rank& rank) {
        const std::int64_t came = nanoseconds_now();
        const Interval own = timed(rank, [] {});
        std::array<std::int64_t, 1> last{came};
        reduce_over_world(rank, shardkit::ReduceOp::max, std::span<std::int64_t>(last));
        CHECK(own.begin >= last[0]);
        CHECK(own.end >= own.begin);
    });
}

TEST_CASE("things take turns, each with a call that is not timed before those that are") {
    shardkit::threads::run(shardkit::DeviceMesh<1>{}, [](auto& rank) {
        using Made = std::vector<std::pair<char, std::size_t>>;
        Made made;
        const std::vector<Turn> turns{[&](std::size_t n) { made.emplace_back('a', n); },
                                      [&](std::size_t n) { made.emplace_back('b', n); }};
        const auto times = time_in_turns(rank, 2, 7, std::span(turns));
        CHECK(times.size() == 2);
        CHECK(made == Made{{'a', 1}, {'a', 7}, {'b', 1}, {'b', 7}, {'a', 1}, {'a', 7}, {'b', 1}, {'b', 7}});
    });
}

}  // namespace interval_test
