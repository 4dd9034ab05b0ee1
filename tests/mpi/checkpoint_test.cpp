// SPDX-License-Identifier: Apache-2.0
// What processes save is what one rank saves, and they load it.
#include <shardkit/checkpoint.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include <doctest/doctest.h>

#include <shardkit/backend/mpi/run.hpp>
#include <shardkit/backend/self/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>

#include "temporary_folder.hpp"
#include "with_world.hpp"

namespace checkpoint_test {

namespace {

namespace sk = shardkit;
namespace fs = std::filesystem;
using temporary_folder::contents;
using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic>;

struct Rows : sk::Param<"rows", float, 60, 301> {
    using TensorParallel = sk::tp::Split<0>;
};
struct Narrow : sk::Param<"narrow", float, 7, 60> {
    using TensorParallel = sk::tp::Split<1>;
};
struct Two : sk::Param<"two", float, 2> {};
using Group = sk::Params<Rows, Narrow, Two>;

/// Saves first values, or what `from` has.
template <class Rank>
void save(Rank& rank, const sk::DynamicPolicy& policy, const std::string& from, const std::string& to) {
    sk::Sharded<Group, sk::DynamicPolicy> layer(rank, "layer", {}, {policy});
    const sk::Model model{layer};
    sk::SGD optimizer{model, {.rule = sk::Momentum::classical, .momentum = 0.5}};
    const sk::checkpoint::State state{model, optimizer};
    if (from.empty()) {
        layer.initialize([](std::string_view, std::string_view name, std::uint64_t i) {
            return static_cast<double>(i) + 0.125 * static_cast<double>(name.size());
        });
    } else {
        sk::checkpoint::load(rank, from, state);
    }
    sk::checkpoint::save(rank, to, 4, state);
}

/// A folder of the whole job: named by the process that has started it.
std::string job_folder() {
    std::uint64_t name = static_cast<std::uint64_t>(::getpid());
    MPI_Bcast(&name, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    return (fs::temp_directory_path() / ("shardkit_mpi_" + std::to_string(name))).string();
}

}  // namespace

TEST_CASE("mpi: processes save the bytes that one rank saves, and load them") {
    const std::size_t n = sk::mpi::Environment::size();
    const std::string folder = job_folder();
    int own = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &own);
    if (own == 0) {
        sk::self::run(sk::DeviceMesh<1>{},
                      [&](auto& rank) { save(rank, sk::DynamicPolicy(sk::NoShard{}), "", folder + "/one"); });
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const auto expected = contents(folder + "/one/step-00000004");
    CHECK(expected.size() == 4);
    std::size_t number = 0;
    for (const Mesh mesh : {Mesh(n, 1), Mesh(1, n)}) {
        for (const auto& policy : {sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::ShardOptimizer{}),
                                   sk::DynamicPolicy(sk::FullShard{})}) {
            CAPTURE(policy.name());
            CAPTURE(mesh.tp());
            for (const bool loaded : {false, true}) {
                const std::string to = folder + "/" + std::to_string(number++);
                sk::mpi::run(
                    mesh, [&](auto& rank) { save(rank, policy, loaded ? folder + "/one/step-00000004" : "", to); },
                    {}, mpi_test::patient());
                CHECK(contents(to + "/step-00000004") == expected);
            }
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (own == 0) { fs::remove_all(folder); }
}

}  // namespace checkpoint_test
