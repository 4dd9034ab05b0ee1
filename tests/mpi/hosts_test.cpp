// SPDX-License-Identifier: Apache-2.0
// What the log and the plan say of bytes between hosts, where several are simulated on one.
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/mpi/environment.hpp>
#include <shardkit/backend/mpi/run.hpp>
#include <shardkit/comm/all_gather.hpp>
#include <shardkit/comm/all_reduce.hpp>
#include <shardkit/comm/all_to_all.hpp>
#include <shardkit/comm/broadcast.hpp>
#include <shardkit/comm/moved.hpp>
#include <shardkit/comm/reduce_scatter.hpp>
#include <shardkit/comm/send_receive.hpp>
#include <shardkit/comm/split.hpp>
#include <shardkit/policy/policies.hpp>

#include "unit/plan/planned_and_logged.hpp"
#include "with_world.hpp"

namespace hosts_test {

namespace {

using namespace shardkit;
using namespace mpi_test;

/// Elements of a rank's part: more than what travels with a call, and whole pieces of an all-reduce.
constexpr std::size_t many = 6016;

/// Of 3 to 5 ranks on hosts of 2, how many others are on other hosts, and how many of those one rank takes for its
/// host: those at its own place of theirs; the last of 3 or 5 is alone and takes all.
constexpr std::array<std::array<std::size_t, 5>, 3> strangers{{{1, 1, 2}, {2, 2, 2, 2}, {3, 3, 3, 3, 4}}};
constexpr std::array<std::array<std::size_t, 5>, 3> takes{{{1, 0, 2}, {1, 1, 1, 1}, {2, 1, 2, 1, 4}}};

/// Bytes between hosts that the calls of f are logged with.
template <class Comm, class F>
std::uint64_t crossing(const Comm& comm, Verb verb, F f) {
    comm.traffic().clear();
    f();
    const TrafficLog::Entry entry = comm.traffic().total(verb);
    CHECK(entry.between_hosts <= entry.moved);
    return entry.between_hosts.value;
}

void check_log(const mpi::Options& options, bool in_buffers) {
    const std::size_t n = mpi::Environment::size();
    CAPTURE(options.overlap);
    CAPTURE(options.shared_memory);
    CAPTURE(in_buffers);
    with_world(options, [n, in_buffers, &options](const mpi::Communicator& comm) {
        const std::size_t others = strangers[n - 3][comm.rank()];
        const std::size_t pieces = in_buffers && options.shared_memory ? takes[n - 3][comm.rank()] : others;
        CHECK(ranks_per_host(comm) == 2);
        for (std::size_t q = 0; q < n; ++q) { CHECK(comm.host_of(q) == q / 2); }
        HostBuffer<float> in = in_buffers ? comm.buffer<float>(n * many) : HostBuffer<float>(n * many);
        HostBuffer<float> out = in_buffers ? comm.buffer<float>(n * many) : HostBuffer<float>(n * many);
        const std::span<const float> from(in.span());
        const std::uint64_t part = many * sizeof(float);
        CHECK(crossing(comm, Verb::all_gather, [&] { all_gather(comm, from.first(many), out.span(), {}); }) ==
              pieces * part);
        CHECK(crossing(comm, Verb::all_gather, [&] { all_gather_in_place(comm, out.span(), {}); }) == pieces * part);
        CHECK(crossing(comm, Verb::reduce_scatter, [&] {
                  reduce_scatter(comm, ReduceOp::sum, from, out.span().first(many), {});
              }) == others * part);
        const bool by_mpi = options.sums == mpi::Sums::by_mpi;
        CHECK(crossing(comm, Verb::all_reduce, [&] { all_reduce(comm, ReduceOp::sum, from, out.span(), {}); }) ==
              (others + (by_mpi ? others : pieces)) * part);
        CHECK(crossing(comm, Verb::all_to_all, [&] { all_to_all(comm, from, out.span(), {}); }) == others * part);
        // Each rank sends its own number of elements to all.
        std::vector<std::size_t> receives(n);
        std::iota(receives.begin(), receives.end(), std::size_t{0});
        const std::vector<std::size_t> sends(n, comm.rank());
        const std::size_t all = n * (n - 1) / 2;
        std::uint64_t from_here = 0;
        for (std::size_t q = 0; q < n; ++q) { from_here += q / 2 == comm.rank() / 2 ? q : 0; }
        CHECK(crossing(comm, Verb::all_to_all_uneven, [&] {
                  all_to_all_uneven(comm, from.first(n * comm.rank()), sends, out.span().first(all), receives, {});
              }) == (all - from_here) * sizeof(float));
        // From rank 1, at the second place of its host, to whoever takes from it, or to all.
        const bool reads = in_buffers && options.shared_memory && comm.rank() % 2 == 0 && comm.rank() != n - n % 2;
        CHECK(crossing(comm, Verb::broadcast, [&] { broadcast(comm, out.span(), 1, {}); }) ==
              (comm.rank() < 2 || reads ? 0 : n * part));
        // What travels with a call, or is as small, goes to every rank.
        const auto little = from.first(100);
        CHECK(crossing(comm, Verb::all_gather, [&] { all_gather(comm, little, out.span().first(n * 100), {}); }) ==
              others * 400);
        if (!by_mpi) {
            CHECK(crossing(comm, Verb::all_reduce, [&] {
                      all_reduce(comm, ReduceOp::sum, little, out.span().first(100), {});
                  }) == others * 400);
        }
        // In a ring the message from the rank before comes from another host at every second rank, and the first.
        const std::size_t next = (comm.rank() + 1) % n;
        const std::size_t before = (comm.rank() + n - 1) % n;
        CHECK(crossing(comm, Verb::receive, [&] {
                  send_receive(comm, little, next, out.span().first(100), before, {});
              }) == (comm.rank() % 2 == 0 ? 400 : 0));
        CHECK(comm.traffic().total(Verb::send).between_hosts.value ==
              (comm.rank() % 2 == 1 || comm.rank() == n - 1 ? 400 : 0));
        // Groups of a host, and of ranks that have one on each.
        const auto here = split(comm, comm.rank() / 2, 0, "here");
        CHECK(crossing(here, Verb::all_reduce, [&] { all_reduce(here, ReduceOp::sum, from, out.span(), {}); }) == 0);
        const auto across = split(comm, comm.rank() % 2, 0, "across");
        CHECK(crossing(across, Verb::all_gather, [&] {
                  all_gather(across, from.first(many), out.span().first(across.size() * many), {});
              }) == (across.size() - 1) * part);
        CHECK(crossing(comm, Verb::split, [&] { static_cast<void>(split(comm, 0, 0, "all")); }) == others * 16);
    });
}

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
                numbers.insert(numbers.end(),
                               {row.calls, row.payload.value, row.moved.value, row.between_hosts.value});
            }
            std::vector<std::uint64_t> all(numbers.size() * mesh.size());
            all_gather(rank.world(), std::span<const std::uint64_t>(numbers), std::span<std::uint64_t>(all), {});
            std::vector<TrafficLog> logs(mesh.size());
            for (std::size_t r = 0; r < logs.size(); ++r) {
                for (std::size_t i = 0; i < rows.size(); ++i) {
                    const std::uint64_t* const at = &all[r * numbers.size() + 4 * i];
                    const std::size_t row = logs[r].add_communicator(rows[i].axes);
                    for (std::uint64_t call = 0; call < at[0]; ++call) {
                        const bool first = call == 0;
                        logs[r].record(row, rows[i].verb, ByteCount(first ? at[1] : 0), ByteCount(first ? at[2] : 0),
                                       ByteCount(first ? at[3] : 0));
                    }
                }
            }
            result = toy::rows_of(mine.first, logs);
        },
        {}, patient(options));
    return result;
}

}  // namespace

TEST_CASE("mpi: the log says what crosses between hosts, whatever way it goes") {
    if (const std::size_t n = mpi::Environment::size(); n < 3 || n > 5) { return; }
    for (const bool in_buffers : {true, false}) {
        check_log({.ranks_per_host = 2}, in_buffers);
        check_log({.overlap = true, .ranks_per_host = 2}, in_buffers);
        check_log({.shared_memory = false, .ranks_per_host = 2}, in_buffers);
    }
    check_log({.sums = mpi::Sums::by_mpi, .ranks_per_host = 2}, true);
}

TEST_CASE("mpi: of a verb that may still be under way the log says what crosses if all memory is seen") {
    if (mpi::Environment::size() != 4) { return; }
    mpi::World world(MPI_COMM_WORLD, patient({.overlap = true, .ranks_per_host = 2}));
    const mpi::Communicator comm(world);
    std::vector<float> full(4 * many);
    const std::uint64_t bytes = crossing(comm, Verb::all_gather, [&] {
        all_gather_in_place(comm, std::span<float>(full), world.communication_stream());
        world.drain();
    });
    CHECK(bytes == many * sizeof(float));
    world.finish();
}

TEST_CASE("mpi: ranks that are not on hosts in their order have no number of ranks per host") {
    if (mpi::Environment::size() != 4) { return; }
    with_world({.ranks_per_host = 2}, [](const auto& comm) {
        CHECK(ranks_per_host(split(comm, 0, comm.rank() % 2 * 2 + comm.rank() / 2, "turned")) == 0);
    });
    with_world({}, [](const auto& comm) { CHECK(ranks_per_host(comm) == 0); });
}

TEST_CASE("mpi: a plan's rows are the log's, bytes between hosts included, under every policy") {
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
            std::uint64_t crossed = 0;
            for (const auto& [key, row] : fp32.logged) { crossed += row.between_hosts; }
            CHECK((crossed > 0) == (n > 1));
        }
    }
}

}  // namespace hosts_test
