// SPDX-License-Identifier: Apache-2.0
// Who is on which host, and what the log and the plan say, where several hosts are simulated on one.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/mpi/environment.hpp>
#include <shardkit/backend/mpi/run.hpp>
#include <shardkit/comm/ranks_per_host.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/verbs/all_gather.hpp>
#include <shardkit/verbs/split.hpp>

#include "unit/plan/planned_and_logged.hpp"
#include "with_world.hpp"

namespace hosts_test {

namespace {

using namespace shardkit;
using namespace mpi_test;

using OverCp = Axes<DpShard, Cp>;

/// What all processes planned and logged, on each of them.
template <class Precision>
toy::PlannedAndLogged planned_and_logged(const DeviceMesh<dynamic, dynamic, dynamic>& mesh,
                                         const DynamicPolicy& policy, std::size_t microbatches,
                                         const mpi::Options& options) {
    toy::PlannedAndLogged result;
    mpi::run(
        mesh,
        [&](auto& rank) {
            const auto mine = toy::plan_and_log<Precision>(rank, {policy}, microbatches);
            const auto rows = mine.second.rows();
            std::vector<std::uint64_t> numbers;
            for (const auto& row : rows) {
                numbers.insert(numbers.end(), {row.calls, row.payload.value, row.moved.value});
            }
            std::vector<std::uint64_t> all(numbers.size() * mesh.size());
            all_gather(rank.world(), std::span<const std::uint64_t>(numbers), std::span<std::uint64_t>(all), {});
            std::vector<TrafficLog> logs(mesh.size());
            for (std::size_t r = 0; r < logs.size(); ++r) {
                for (std::size_t i = 0; i < rows.size(); ++i) {
                    const std::uint64_t* const at = &all[r * numbers.size() + 3 * i];
                    const std::size_t row = logs[r].add_communicator(rows[i].axes);
                    for (std::uint64_t call = 0; call < at[0]; ++call) {
                        const bool first = call == 0;
                        logs[r].record(row, rows[i].verb, ByteCount(first ? at[1] : 0), ByteCount(first ? at[2] : 0));
                    }
                }
            }
            result = toy::rows_of(mine.first, logs);
        },
        {}, patient(options));
    return result;
}

}  // namespace

TEST_CASE("mpi: ranks that are not on hosts in their order have no number of ranks per host") {
    if (mpi::Environment::size() != 4) { return; }
    with_world({.ranks_per_host = 2}, [](const auto& comm) {
        CHECK(ranks_per_host(split(comm, 0, comm.rank() % 2 * 2 + comm.rank() / 2, "turned")) == 0);
    });
    with_world({}, [](const auto& comm) { CHECK(ranks_per_host(comm) == 0); });
}

TEST_CASE("mpi: communicators know the hosts, here simulated ones") {
    if (mpi::Environment::size() < 3) { return; }
    with_world({.ranks_per_host = 2}, [](const shardkit::Communicator& comm) {
        CHECK(ranks_per_host(comm) == 2);
        for (std::size_t q = 0; q < comm.size(); ++q) { CHECK(comm.host_of(q) == q / 2); }
    });
}

TEST_CASE("mpi: a plan's rows are the log's on several hosts, under every policy") {
    const std::size_t n = mpi::Environment::size();
    const std::size_t each = n == 4 ? 2 : 1;
    using Mesh = DeviceMesh<dynamic, dynamic, dynamic>;
    std::vector<Mesh> meshes{Mesh(n, 1, 1)};
    if (n == 4) {
        for (const Mesh& mesh : {Mesh(2, 2, 1), Mesh(2, 1, 2), Mesh(1, 2, 2), Mesh(1, 1, 4), Mesh(1, 4, 1)}) {
            meshes.push_back(mesh);
        }
    }
    std::vector<DynamicPolicy> policies;
    const auto add = [&](const auto&... all) { (policies.emplace_back(all), ...); };
    add(NoShard{}, ShardOptimizer{}, ShardGradOp{}, FullShard{}, HybridShard<1>{}, ShardOver<FullShard, OverCp>{});
    bool overlap = true;
    for (const auto& mesh : meshes) {
        CAPTURE(mesh.describe());
        auto on_mesh = policies;
        if (mesh.grid().extent("dp") % 2 == 0) { on_mesh.emplace_back(HybridShard<2>{}); }
        for (const DynamicPolicy& policy : on_mesh) {
            CAPTURE(policy.name());
            // Half of the policies each way: a World takes longer than its steps.
            overlap = !overlap;
            const mpi::Options options{.overlap = overlap, .ranks_per_host = each};
            const auto fp32 = planned_and_logged<Precision<float>>(mesh, policy, 2, options);
            CHECK(toy::difference(fp32, n) == "");
            const auto mixed = planned_and_logged<Precision<float, bf16, float>>(mesh, policy, 1, options);
            CHECK(toy::difference(mixed, n) == "");
        }
    }
}

}  // namespace hosts_test
