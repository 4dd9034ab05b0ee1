// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include <doctest/doctest.h>

#include <shardkit/backend/host/rank_order_reduction.hpp>

namespace chunk_test {

using shardkit::host::detail::Chunk;
using shardkit::host::detail::chunk_of;

TEST_CASE("chunk: the chunks of all ranks are disjoint, cover everything and are cut at 128 bytes") {
    constexpr std::size_t element_sizes[] = {1, 2, 4, 8, 200};
    for (const std::size_t size : element_sizes) {
        const std::size_t unit = size > 128 ? 1 : 128 / size;
        for (std::size_t ranks = 1; ranks <= 9; ++ranks) {
            for (std::size_t count = 0; count <= 1300; ++count) {
                std::size_t at = 0;
                std::size_t shortest = count;
                std::size_t longest = 0;
                for (std::size_t rank = 0; rank < ranks; ++rank) {
                    const Chunk chunk = chunk_of(count, size, rank, ranks);
                    REQUIRE(chunk.begin == at);
                    REQUIRE(chunk.end >= chunk.begin);
                    const bool cut_at_unit = chunk.end == count || chunk.end % unit == 0;
                    REQUIRE(cut_at_unit);
                    at = chunk.end;
                    shortest = chunk.size() < shortest ? chunk.size() : shortest;
                    longest = chunk.size() > longest ? chunk.size() : longest;
                }
                REQUIRE(at == count);
                REQUIRE(longest - shortest <= 2 * unit - 1);
            }
        }
    }
}

TEST_CASE("chunk: equal chunks when the count divides, also past 2^32 elements") {
    constexpr std::size_t count = std::size_t{3} << 34U;
    static_assert(chunk_of(count, 4, 0, 8).size() == count / 8);
    static_assert(chunk_of(count, 4, 7, 8).begin == count / 8 * 7);
    static_assert(chunk_of(count, 4, 7, 8).end == count);
    CHECK(chunk_of(count, 2, 3, 8).size() == count / 8);
}

}  // namespace chunk_test
