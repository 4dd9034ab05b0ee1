// SPDX-License-Identifier: Apache-2.0
// Processes bring a state to another mesh with the bits of a checkpoint.
#include <shardkit/reshard.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <string>
#include <utility>

#include <unistd.h>

#include <doctest/doctest.h>

#include <shardkit/backend/mpi/run.hpp>

#include "files_in_cache.hpp"
#include "reshard_training.hpp"
#include "temporary_folder.hpp"
#include "with_world.hpp"

namespace reshard_test {

namespace {

namespace sk = shardkit;
namespace fs = std::filesystem;
using reshard_training::Mesh;
using reshard_training::Side;
using temporary_folder::contents;

}  // namespace

TEST_CASE("mpi: processes bring a state to another mesh with the bits of a checkpoint") {
    const std::size_t n = sk::mpi::Environment::size();
    std::uint64_t name = static_cast<std::uint64_t>(::getpid());
    MPI_Bcast(&name, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    const std::string folder =
        (fs::temp_directory_path() / ("shardkit_mpi_reshard_" + std::to_string(name))).string();
    int own = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &own);
    files_in_cache::InCache files;
    using What = reshard_training::WithAdamW<float>;
    if (own == 0) { reshard_training::save_first<What>(folder + "/first", files); }
    MPI_Barrier(MPI_COMM_WORLD);
    const reshard_training::Reshards what{folder + "/first", contents(folder + "/first"), folder + "/saved", files};
    CHECK(what.expected.size() == 5);
    const auto whole = reshard_training::case_of(sk::NoShard{});
    const auto shards = reshard_training::case_of(sk::FullShard{});
    const auto states = reshard_training::case_of(sk::ShardOptimizer{});
    const std::size_t some = n > 1 ? n - 1 : 1;
    const std::array<std::pair<Side, Side>, 4> pairs{{
        {{Mesh(n, 1, 1), shards, 0}, {Mesh(some, 1, 1), states, n - some}},
        {{Mesh(some, 1, 1), whole, 0}, {Mesh(1, 1, n), shards, 0}},
        {{Mesh(1, n < 4 ? n : 1, 1), whole, 0}, {Mesh(n, 1, 1), shards, 0}},
        {{Mesh(1, 1, 1), states, n - 1}, {Mesh(n, 1, 1), whole, 0}},
    }};
    for (std::size_t i = 0; i < 2 * pairs.size(); ++i) {
        const auto& from = pairs[i / 2].first;
        const auto& to = pairs[i / 2].second;
        CAPTURE(from.text());
        CAPTURE(to.text());
        std::string error;
        try {
            sk::mpi::run(
                sk::DeviceMesh<sk::dynamic>{n},
                [&](auto& rank) {
                    reshard_training::reshard_to_each<What, What>(
                        rank, from, {to}, what,
                        {.staging_bytes = i / 2 % 2 == 0 ? std::size_t{4096} : std::size_t{1} << 22U});
                },
                {}, mpi_test::patient({.ranks_per_host = i % 2 * 2}));
        } catch (const std::exception& exception) { error = exception.what(); }
        CHECK(error == "");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (own == 0) { fs::remove_all(folder); }
}

}  // namespace reshard_test
