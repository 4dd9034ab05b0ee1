// SPDX-License-Identifier: Apache-2.0
// A state of devices is brought to another mesh with the bits of a checkpoint.
#include <shardkit/backend/nccl/native.hpp>
#include <shardkit/reshard.hpp>

#include <array>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <string>
#include <utility>

#include <doctest/doctest.h>

#include <shardkit/policy/policies.hpp>
#include <shardkit/verbs/barrier.hpp>

#include "files_in_cache.hpp"
#include "gpu_ranks.hpp"
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
    using What = reshard_training::WithAdamW<float>;
    reshard_training::save_first<What>(folder.file("first"), files);
    const reshard_training::Reshards what{folder.file("first"), contents(folder.file("first")), folder.file("saved"),
                                          files};
    CHECK(what.expected.size() == 5);
    const auto whole = reshard_training::case_of(sk::NoShard{});
    const auto shards = reshard_training::case_of(sk::FullShard{});
    const auto states = reshard_training::case_of(sk::ShardOptimizer{});
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
        REQUIRE(paced_ranks::run(Mesh(5, 1, 1), paced_ranks::all_paces[i % 4], {}, [&](auto& rank, const auto&) {
                    // Large pieces, of some hundred KiB, go from device to device.
                    reshard_training::reshard_to_each<What, What>(
                        rank, from, {to}, what,
                        {.staging_bytes = i == 2 ? std::size_t{4096} : std::size_t{1} << 22U});
                }) == "");
    }
}

TEST_CASE(
    "nccl: a state goes to the World of the ranks that are left, unless work on it may have been cut off by a "
    "failure") {
    const temporary_folder::Folder folder;
    files_in_cache::InCache files;
    using What = reshard_training::WithAdamW<float>;
    using State = What::On;
    reshard_training::save_first<What>(folder.file("first"), files);
    // Rank 3 leaves; it is lost when the others have waited; it is lost before they wait for a change.
    enum class End { leaves, lost, lost_early };
    for (const End end : {End::leaves, End::lost, End::lost_early}) {
        CAPTURE(static_cast<int>(end));
        gpu_ranks::restart();
        const sk::nccl::UniqueId id = sk::nccl::UniqueId::create();
        std::array<std::string, 4> refused;
        const auto outcomes = gpu_ranks::each_in_a_thread(4, [&](std::size_t number) {
            sk::nccl::Options options = gpu_ranks::impatient();
            options.survivable = true;
            sk::nccl::World world(id, 4, number, options);
            const gpu_ranks::Comm comm(world);
            // Two ranks have everything between them, and two others too.
            sk::MeshRank<Mesh> rank(Mesh(4, 1, 1), comm, {}, world.streams());
            State source(rank, sk::DynamicPolicy(sk::HybridShard<2>{}));
            sk::checkpoint::load(rank, folder.file("first/step-00000001"), source.state, {.files = &files});
            if (number == 3) {
                if (end == End::leaves) { return world.abort(); }
                standin::kill_rank(sk::nccl::native(comm));
                throw rank_checks::Planted("gone");
            }
            if (end == End::lost_early) {
                source.skipped.initialize([](auto, auto, std::uint64_t) { return 1.0; });
            }
            if (end != End::leaves) {
                sk::barrier(comm, rank.compute_stream());
                CHECK_THROWS_AS(rank.compute_stream().synchronize(), sk::CommError);
            }
            const std::array<std::size_t, 1> lost{3};
            sk::nccl::World left(sk::nccl::Survivors{world, lost}, gpu_ranks::patient());
            sk::MeshRank<Mesh> now(Mesh(3, 1, 1), gpu_ranks::Comm(left), {}, left.streams());
            State destination(now, sk::DynamicPolicy(sk::FullShard{}));
            try {
                sk::reshard(now, &source.state, &destination.state);
                sk::checkpoint::save(now, folder.file("saved"), 1, destination.state,
                                     {.replace = true, .files = &files});
            } catch (const std::exception& error) { refused[number] = error.what(); }
            if (end != End::leaves) { CHECK_THROWS_AS(rank.compute_stream().synchronize(), sk::CommError); }
            left.finish();
        });
        for (const std::size_t number : {0U, 1U, 2U}) {
            CHECK(outcomes[number].text == "");
            if (end == End::lost_early) {
                CHECK(rank_checks::contains(refused[number], "rank 0: nccl: synchronize"));
                CHECK(rank_checks::contains(refused[number], "this World has ended after an earlier failure"));
            } else {
                CHECK(refused[number] == "");
            }
        }
        if (end != End::lost_early) { CHECK(contents(folder.file("saved")) == contents(folder.file("first"))); }
        std::filesystem::remove_all(folder.file("saved"));
    }
    CHECK(standin::live() == standin::Live{});
}

}  // namespace reshard_test
