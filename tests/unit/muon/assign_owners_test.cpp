// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/muon/assign_owners.hpp>

namespace assign_owners_test {

namespace {

constexpr auto everyone = [](std::size_t, std::size_t) { return true; };

struct Assigned {
    std::vector<std::size_t> owners;
    std::vector<std::uint64_t> loads;

    std::uint64_t most() const { return *std::max_element(loads.begin(), loads.end()); }
};

Assigned assigned(const std::vector<std::uint64_t>& costs, std::size_t ranks) {
    Assigned result{{}, std::vector<std::uint64_t>(ranks)};
    result.owners = shardkit::layout::assign_owners(std::span<const std::uint64_t>(costs), result.loads, everyone);
    return result;
}

/// The least that the busiest of the ranks can have, by trying all owners.
std::uint64_t best(const std::vector<std::uint64_t>& costs, std::vector<std::uint64_t>& loads, std::size_t work = 0) {
    if (work == costs.size()) { return *std::max_element(loads.begin(), loads.end()); }
    std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
    for (std::uint64_t& load : loads) {
        load += costs[work];
        least = std::min(least, best(costs, loads, work + 1));
        load -= costs[work];
    }
    return least;
}

/// 12 layers of width 768: queries with keys and values, projection, up and down.
std::vector<std::uint64_t> transformer() {
    std::vector<std::uint64_t> costs;
    for (int layer = 0; layer < 12; ++layer) { costs.insert(costs.end(), {10, 4, 13, 13}); }
    return costs;
}

}  // namespace

TEST_CASE(
    "each work has one owner, loads are what owners have, and no rank has more than the bound, on 1 to 64 ranks") {
    const std::vector<std::uint64_t> costs = transformer();
    const std::uint64_t sum = std::accumulate(costs.begin(), costs.end(), std::uint64_t{0});
    for (std::size_t ranks = 1; ranks <= 64; ++ranks) {
        CAPTURE(ranks);
        const Assigned result = assigned(costs, ranks);
        std::vector<std::uint64_t> loads(ranks);
        REQUIRE(result.owners.size() == costs.size());
        for (std::size_t i = 0; i < costs.size(); ++i) { loads.at(result.owners[i]) += costs[i]; }
        CHECK(loads == result.loads);
        CHECK(result.most() <= sum / ranks + 13);
        // Where ranks divide the layers, what is left over is less than the smallest matrix.
        if (12 % ranks == 0) { CHECK(result.most() <= sum / ranks + 4); }
        // With a rank for each matrix, or more, the largest is what the busiest has.
        if (ranks >= costs.size()) { CHECK(result.most() == 13); }
    }
}

TEST_CASE("equal works are dealt out equally, in the order of ranks") {
    const Assigned result = assigned(std::vector<std::uint64_t>(12, 7), 4);
    for (std::size_t i = 0; i < 12; ++i) { CHECK(result.owners[i] == i % 4); }
    CHECK(result.loads == std::vector<std::uint64_t>(4, 21));
    CHECK(assigned({}, 3).loads == std::vector<std::uint64_t>(3, 0));
}

TEST_CASE("the busiest rank has at most a third more than in the best of all assignments") {
    const std::vector<std::vector<std::uint64_t>> lists{
        {5, 5, 4, 4, 3, 3, 3}, {9, 7, 6, 5, 5, 4, 2, 1}, {1, 1, 1, 6}};
    for (const auto& costs : lists) {
        for (std::size_t ranks = 1; ranks <= 4; ++ranks) {
            std::vector<std::uint64_t> loads(ranks);
            CHECK(3 * assigned(costs, ranks).most() <= 4 * best(costs, loads));
        }
    }
}

TEST_CASE("a work goes to a rank that shares it, with what ranks had before") {
    const std::vector<std::uint64_t> costs{4, 4, 4};
    std::vector<std::uint64_t> loads{9, 0, 0, 5};
    const auto owners = shardkit::layout::assign_owners(
        std::span<const std::uint64_t>(costs), loads,
        [](std::size_t work, std::size_t rank) { return work != 1 || rank % 3 == 0; });
    CHECK(owners == std::vector<std::size_t>{1, 3, 2});
    CHECK(loads == std::vector<std::uint64_t>{9, 4, 4, 9});
}

}  // namespace assign_owners_test
