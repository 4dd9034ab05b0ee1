// SPDX-License-Identifier: Apache-2.0
// A tensor of more than 2^32 bytes.
#include <shardkit/reshard.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <unistd.h>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/list_shards.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/verbs/split.hpp>

#include "test_size.hpp"

namespace large_test {

namespace {

namespace sk = shardkit;

constexpr std::size_t rows = (std::size_t{1} << 20U) + 2;
constexpr std::size_t columns = 515;  // 4.02 GiB of fp64
// Frozen and split over tp: each rank of the source has its half, and no gradients.
struct Long : sk::Param<"long", double, rows, columns>, sk::tp::Split<0>, sk::Frozen {};
struct Behind : sk::Param<"behind", double, 5>, sk::Frozen {};
using Layer = sk::Sharded<sk::Params<Long, Behind>, sk::NoShard>;

double value_of(std::size_t element) { return static_cast<double>((element * 2654435761U) >> 12U & 0xFFFFU); }

}  // namespace

TEST_CASE("more than 2^32 bytes are brought from two ranks to another one") {
    const auto memory =
        static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    if (test_size::reduced() || memory < std::uint64_t{16} << 30U) {
        MESSAGE("left out: it needs 16 GiB of memory and a build that is not slow");
        return;
    }
    std::size_t held = 0;
    std::size_t wrong = 0;
    sk::threads::run(sk::DeviceMesh<3>{}, [&](auto& rank) {
        const bool sends = rank.rank() < 2;
        const auto ranks = sk::split(rank.world(), sends ? 0 : 1, rank.rank(), sends ? "source" : "destination");
        sk::MeshRank<sk::DeviceMesh<1, sk::dynamic>> part{sk::DeviceMesh<1, sk::dynamic>(1, ranks.size()), ranks};
        Layer layer(part, "layer");
        if (sends) {
            layer.initialize([](std::string_view, std::string_view, std::uint64_t i) { return value_of(i); });
        }
        using Side = sk::ReshardSide;
        const Side own(sk::Model{layer});
        const sk::ReshardPlan plan = sk::plan_reshard(rank, sends ? own : nullptr, sends ? nullptr : own);
        sk::reshard(rank, plan, sends ? own : nullptr, sends ? nullptr : own);
        if (sends) { return; }
        CHECK(plan.received(2) == (rows * columns + 5) * sizeof(double));
        for (const sk::ShardInfo& shard : layer.shards()) {
            const auto* const values = static_cast<const double*>(shard.data);
            held += shard.range.size();
            for (std::size_t i = 0; i < shard.range.size(); ++i) {
                wrong += values[i] == value_of(shard.range.begin + i) ? 0U : 1U;
            }
        }
    });
    CHECK(held == rows * columns + 5);
    CHECK(wrong == 0);
}

}  // namespace large_test
