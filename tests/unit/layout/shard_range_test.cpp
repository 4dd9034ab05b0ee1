// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <limits>

#include <doctest/doctest.h>

#include <shardkit/layout/flat_layout.hpp>

namespace shard_range_test {

namespace {

using namespace shardkit;

constexpr std::size_t largest = std::numeric_limits<std::size_t>::max();

constexpr bool rounds_up(std::size_t n, std::size_t multiple) {
    const std::size_t result = detail::round_up(n, multiple);
    return result % multiple == 0 && result >= n && (result == 0 || result - multiple < n);
}
constexpr bool divides_up(std::size_t n, std::size_t divisor) {
    const std::size_t q = detail::divide_up(n, divisor);
    return q * divisor >= n && (q == 0 || (q - 1) * divisor < n);
}
constexpr bool is_shard_numel(std::size_t total, std::size_t shards, std::size_t alignment) {
    const std::size_t numel = detail::shard_numel(total, shards, alignment);
    return numel % alignment == 0 && numel * shards >= total && (numel == 0 || (numel - alignment) * shards < total);
}
constexpr bool is_cut(std::size_t numel, std::size_t buffer, std::size_t shards) {
    std::size_t at = 0;
    for (std::size_t i = 0; i < shards; ++i) {
        const IndexRange shard = detail::shard_range(i, numel, buffer);
        if (shard.begin != at || shard.end < shard.begin || shard.size() > numel) { return false; }
        if (shard.size() < numel && shard.end != buffer) { return false; }  // only the end is clipped
        at = shard.end;
    }
    return at == buffer;
}

template <class F>
constexpr bool all_of(std::size_t n_end, std::size_t a_end, std::size_t b_end, F f) {
    for (std::size_t n = 0; n < n_end; ++n) {
        for (std::size_t a = 1; a < a_end; ++a) {
            for (std::size_t b = 1; b < b_end; ++b) {
                if (!f(n, a, b)) { return false; }
            }
        }
    }
    return true;
}

static_assert(all_of(20, 8, 2, [](auto n, auto m, auto) { return rounds_up(n, m) && divides_up(n, m); }));
static_assert(all_of(20, 6, 5, is_shard_numel));

}  // namespace

TEST_CASE("round_up, divide_up and shard_numel keep their post-conditions") {
    CHECK(all_of(70, 20, 2, [](auto n, auto m, auto) { return rounds_up(n, m) && divides_up(n, m); }));
    CHECK(all_of(100, 13, 17, is_shard_numel));
}

TEST_CASE("shard_numel: literals of ceil(total / shards) rounded up") {
    CHECK(detail::shard_numel(0, 4, 32) == 0);
    CHECK(detail::shard_numel(1, 4, 32) == 32);
    CHECK(detail::shard_numel(100, 3, 1) == 34);
    CHECK(detail::shard_numel(100, 3, 8) == 40);
    CHECK(detail::shard_numel(96, 3, 8) == 32);
    CHECK(detail::shard_numel(97, 3, 8) == 40);
}

TEST_CASE("shard_range: disjoint, in order, covering; clipped at the end only") {
    for (std::size_t buffer = 0; buffer < 60; ++buffer) {
        for (std::size_t shards = 1; shards < 9; ++shards) {
            for (std::size_t numel = 0; numel < 40; ++numel) {
                if (numel * shards >= buffer) { REQUIRE(is_cut(numel, buffer, shards)); }
            }
        }
    }
}

TEST_CASE("shard_range: past 2^32 and up to the last index") {
    constexpr std::size_t numel = 3'000'000'000;
    static_assert(detail::shard_range(3, numel, 4 * numel) == IndexRange{9'000'000'000, 12'000'000'000});
    CHECK(is_cut(numel, 4 * numel, 4));
    CHECK(is_cut(numel, 4 * numel - 7, 4));
    CHECK(detail::shard_range(1, largest, largest) == IndexRange{largest, largest});
    CHECK(detail::shard_range(0, largest, largest) == IndexRange{0, largest});
    CHECK(is_cut(largest / 5, largest / 5 * 5, 5));
    CHECK(is_cut(largest / 5 + 1, largest, 5));                        // 5 * numel would overflow
    CHECK(detail::shard_range(largest, 8, 20) == IndexRange{20, 20});  // index * numel would overflow
    CHECK(detail::shard_numel(largest - 10, 1, 1) == largest - 10);
    CHECK(rounds_up(largest - 10, 4));
    CHECK(detail::divide_up(largest, 2) == (std::size_t{1} << 63U));
    CHECK(detail::divide_up(largest, largest) == 1);
}

}  // namespace shard_range_test
