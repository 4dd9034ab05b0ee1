// SPDX-License-Identifier: Apache-2.0
#include <shardkit/rank/all_reduce_value.hpp>

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

namespace sk = shardkit;

namespace all_reduce_value_test {

TEST_CASE("exact_sum: the same bits on 1 to 8 ranks, which no sum of doubles has") {
    // Their sum is 1001: the large ones cancel, whichever ranks have them.
    const auto number = [](std::size_t i) { return i % 3 == 0 ? 1e200 : i % 3 == 1 ? 1 : -1e200; };
    for (const std::size_t ranks : {1U, 2U, 3U, 8U}) {
        CAPTURE(ranks);
        sk::threads::run(sk::DeviceMesh{ranks}, [&](auto& rank) {
            std::vector<double> mine;
            for (std::size_t i = rank.rank(); i < 3003; i += ranks) { mine.push_back(number(i)); }
            for (int again = 0; again < 2; ++again) { CHECK(sk::exact_sum(rank, mine) == 1001); }
            const double infinity = std::numeric_limits<double>::infinity();
            const std::vector<double> one{rank.rank() == 0 ? -infinity : 1};
            CHECK(sk::exact_sum(rank, one) == -infinity);
            CHECK(sk::exact_sum(rank, {}) == 0);
        });
    }
}

}  // namespace all_reduce_value_test
