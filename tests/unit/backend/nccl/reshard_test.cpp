// SPDX-License-Identifier: Apache-2.0
// A state of devices is brought to another mesh with the bits of a checkpoint.
#include <shardkit/reshard.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include <doctest/doctest.h>

#include "files_in_cache.hpp"
#include "paced_ranks.hpp"
#include "reshard_training.hpp"
#include "temporary_folder.hpp"

namespace reshard_test {

namespace {

namespace sk = shardkit;
using reshard_training::Mesh;
using reshard_training::Side;
using temporary_folder::contents;

}  // namespace

TEST_CASE("nccl: devices bring a state to another mesh with the bits of a checkpoint, whatever the streams' delays") {
    const temporary_folder::Folder folder;
    files_in_cache::InCache files;
    checkpoint_training::save_first<float, checkpoint_training::WithAdamW>(folder.file("first"), files);
    const auto expected = contents(folder.file("first"));
    CHECK(expected.size() == 5);
    const sk::DynamicPolicy whole(sk::NoShard{});
    const sk::DynamicPolicy shards(sk::FullShard{});
    const sk::DynamicPolicy states(sk::ShardOptimizer{});
    const std::array<std::pair<Side, Side>, 4> pairs{{
        {{Mesh(4, 1, 1), shards, 0}, {Mesh(1, 2, 1), whole, 3}},
        {{Mesh(1, 1, 1), whole, 1}, {Mesh(5, 1, 1), states, 0}},
        {{Mesh(2, 2, 1), states, 0}, {Mesh(2, 1, 2), shards, 1}},
        {{Mesh(2, 1, 1), whole, 0}, {Mesh(2, 1, 1), whole, 3}},
    }};
    for (std::size_t i = 0; i < pairs.size(); ++i) {
        const auto& from = pairs[i].first;
        const auto& to = pairs[i].second;
        CAPTURE(from.text());
        CAPTURE(to.text());
        const std::string saved = folder.file(std::to_string(i));
        REQUIRE(paced_ranks::run(Mesh(5, 1, 1), paced_ranks::all_paces[i % 4], {}, [&](auto& rank, const auto&) {
                    // Large pieces, of some hundred KiB, go from device to device.
                    reshard_training::load_reshard_and_save<float, float>(
                        rank, from, to, folder.file("first"), saved, files,
                        {.staging_bytes = i == 2 ? std::size_t{4096} : std::size_t{1} << 22U});
                }) == "");
        CHECK(contents(saved) == expected);
    }
}

}  // namespace reshard_test
