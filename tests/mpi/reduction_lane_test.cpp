// SPDX-License-Identifier: Apache-2.0
// Reductions beside gathers: a stream, a thread and communicators of their own.
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/mpi/environment.hpp>
#include <shardkit/backend/mpi/run.hpp>
#include <shardkit/backend/mpi/staged.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/norm.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/divisor.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>
#include <shardkit/verbs/all_gather.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verbs/barrier.hpp>
#include <shardkit/verbs/reduce_scatter.hpp>
#include <shardkit/verbs/split.hpp>

#include "interposed.hpp"
#include "unit/backend/verb_suite.hpp"
#include "with_world.hpp"

namespace reduction_lane_test {

namespace {

using namespace shardkit;
using namespace verb_suite;
using namespace mpi_test;
using Comm = shardkit::Communicator;

/// Every way in which two lanes can go.
const mpi::Options lanes[] = {
    {.overlap = true},
    {.overlap = true, .shared_memory = false},
    {.overlap = true, .ranks_per_host = 1},
    {.overlap = true, .ranks_per_host = 2, .staging_bytes = 4000, .message_elements = 100},
    {.overlap = true, .shared_memory = false, .compare_calls = CompareCalls::off},
    {.overlap = true, .ranks_per_host = 1, .compare_calls = CompareCalls::each_step},
};

/// A rank that waits longer than this waits for ever: what a test here fails with.
mpi::Options impatient(mpi::Options options) {
    options.timeout = std::chrono::seconds(20);
    return options;
}

/// Elements of one rank's part, more than what travels with a call.
constexpr std::size_t many = 6000;
/// Doubles of a norm's sum.
constexpr std::size_t partials = 24;

struct Buffers {
    HostBuffer<float> shard;
    HostBuffer<float> full;
    HostBuffer<double> sums;

    explicit Buffers(const Comm& comm)
        : shard(comm.buffer<float>(many)),
          full(comm.buffer<float>(comm.size() * many)),
          sums(comm.buffer<double>(partials)) {
        for (float& each : shard.span()) { each = static_cast<float>(comm.rank() + 1); }
        for (double& each : sums.span()) { each = 1; }
    }
    bool gathered() const {
        for (std::size_t i = 0; i < full.size(); ++i) {
            if (full.data()[i] != static_cast<float>(i / many + 1)) { return false; }
        }
        return true;
    }
    bool summed(std::size_t ranks) const {
        for (std::size_t i = 0; i < partials; ++i) {
            if (sums.data()[i] != static_cast<double>(ranks)) { return false; }
        }
        return true;
    }
};

struct Weight : Param<"weight", float, 64> {};
struct Large : Param<"large", float, 60000> {};

/// Some of each lane's verbs, of buffers of their own, given before any has to be done.
void both_at_once(const mpi::Options& options) {
    CAPTURE(options.sums);
    CAPTURE(options.shared_memory);
    CAPTURE(options.ranks_per_host);
    mpi::World world(MPI_COMM_WORLD, impatient(options));
    const shardkit::Communicator comm(world);
    const std::size_t n = comm.size();
    constexpr std::size_t rounds = 10;
    std::vector<Buffers> buffers;
    std::vector<HostBuffer<bf16>> addends;
    std::vector<HostBuffer<float>> reduced;
    for (std::size_t i = 0; i < rounds; ++i) {
        buffers.emplace_back(Comm(world));
        addends.push_back(comm.buffer<bf16>(n * many));
        reduced.push_back(comm.buffer<float>(many));
        for (std::size_t j = 0; j < n * many; ++j) {
            addends[i].data()[j] = bf16(static_cast<float>(comm.rank() + j % 7 + i));
        }
    }
    const auto gathers = world.communication_stream();
    const auto reductions = world.reduction_stream();
    interposed::linger(true);
    for (std::size_t i = 0; i < rounds; ++i) {
        const Buffers& each = buffers[i];
        all_gather(comm, std::span<const float>(each.shard.span()), each.full.span(), gathers);
        reduce_scatter(comm, ReduceOp::sum, std::span<const bf16>(addends[i].span()), reduced[i].span(), reductions);
        all_reduce_in_place(comm, ReduceOp::sum, each.sums.span(), i % 2 == 0 ? gathers : reductions);
    }
    world.drain();
    interposed::linger(false);
    CHECK(!interposed::two_at_once());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < rounds; ++i) {
        CHECK(buffers[i].gathered());
        CHECK(buffers[i].summed(n));
        for (std::size_t j = 0; j < many; ++j) {
            const std::size_t each = (comm.rank() * many + j) % 7 + i;
            wrong += reduced[i].data()[j] == static_cast<float>(n * each + n * (n - 1) / 2) ? 0U : 1U;
        }
    }
    CHECK(wrong == 0);
    world.finish();
}

}  // namespace

TEST_CASE("mpi: a norm's sum ends while a rank is late to a large gather, and a gather while one is late to a sum") {
    if (mpi::Environment::size() == 1) { return; }
    for (const mpi::Options& options : lanes) {
        for (const bool sum_is_held : {false, true}) {
            CAPTURE(options.shared_memory);
            CAPTURE(options.ranks_per_host);
            CAPTURE(sum_is_held);
            mpi::World world(MPI_COMM_WORLD, impatient(options));
            const Comm everybody(world);
            const Comm half = split(everybody, 0, everybody.rank(), "group");
            for (const Comm& comm : {everybody, half}) {
                Buffers values(comm);
                const auto gather = [&] {
                    all_gather(comm, std::span<const float>(values.shard.span()), values.full.span(),
                               world.communication_stream());
                };
                const auto sum = [&] {
                    all_reduce_in_place(comm, ReduceOp::sum, values.sums.span(), world.reduction_stream());
                };
                // What the first rank is late to cannot end before the other has ended on all ranks.
                if (comm.rank() != 0) { sum_is_held ? sum() : gather(); }
                if (sum_is_held) {
                    gather();
                    world.communication_stream().synchronize();
                    CHECK(values.gathered());
                } else {
                    sum();
                    world.reduction_stream().synchronize();
                    CHECK(values.summed(comm.size()));
                }
                if (comm.rank() == 0) { sum_is_held ? sum() : gather(); }
                world.drain();
                CHECK(values.gathered());
                CHECK(values.summed(comm.size()));
            }
            world.finish();
        }
    }
}

TEST_CASE("mpi: a model's gradients are reduced and their norm is known while a rank is late to a window") {
    const std::size_t n = mpi::Environment::size();
    mpi::run(
        DeviceMesh<dynamic>(n),
        [n](auto& rank) {
            Sharded<Weight, FullShard> layer{rank, "layer"};
            Sharded<Large, FullShard> next{rank, "next"};
            Model model{layer};
            std::optional<decltype(next.begin_unshard())> pending;
            if (rank.rank() != 0) { pending.emplace(next.begin_unshard()); }
            Accumulation accumulation{model};
            auto handle = accumulation.gradients(layer);
            for (std::size_t i = 0; i < 64; ++i) { handle[Weight{}][i] = 1; }
            accumulation.add(std::move(handle));
            const auto reduced = reduce(std::move(accumulation), sum);
            CHECK(global_norm(reduced).value() == 8 * static_cast<double>(n));
            if (rank.rank() == 0) { pending.emplace(next.begin_unshard()); }
            const auto window = std::move(*pending).wait();
            CHECK(window[Large{}].data()[59999] == 0);
        },
        {}, impatient({.overlap = true}));
}

TEST_CASE("mpi: verbs in both lanes at once, in turns where MPI is called by one thread") {
    for (mpi::Options options : lanes) {
        for (const mpi::Sums sums : {mpi::Sums::exchanged, mpi::Sums::by_mpi}) {
            options.sums = sums;
            both_at_once(options);
        }
    }
}

TEST_CASE("mpi: every verb in the lane of reductions, bit for bit") {
    // Directly, and by messages in small blocks and pieces.
    for (const mpi::Options& options : {lanes[0], lanes[3]}) {
        mpi::World world(MPI_COMM_WORLD, patient(options));
        verb_stream = world.reduction_stream();
        CHECK_NOTHROW(every_verb<float>(Comm(world)));
        CHECK_NOTHROW(reductions<bf16, float>(Comm(world)));
        verb_stream = {};
        world.finish();
    }
}

TEST_CASE("mpi: finish waits for what both lanes still have") {
    for (const mpi::Options& options : lanes) {
        mpi::World world(MPI_COMM_WORLD, patient(options));
        const Comm comm(world);
        Buffers values(comm);
        all_gather(comm, std::span<const float>(values.shard.span()), values.full.span(),
                   world.communication_stream());
        all_reduce_in_place(comm, ReduceOp::sum, values.sums.span(), world.reduction_stream());
        world.finish();
        CHECK(values.gathered());
        CHECK(values.summed(comm.size()));
    }
}

TEST_CASE("mpi: lanes wait for each other's events") {
    for (const mpi::Options& options : lanes) {
        mpi::World world(MPI_COMM_WORLD, patient(options));
        const Comm comm(world);
        const auto gathers = world.communication_stream();
        const auto reductions = world.reduction_stream();
        double value = 1;
        double expected = 1;
        const std::span<double> one(&value, 1);
        for (int i = 0; i < 50; ++i) {
            all_reduce_in_place(comm, ReduceOp::sum, one, i % 2 == 0 ? gathers : reductions);
            (i % 2 == 0 ? reductions : gathers).wait((i % 2 == 0 ? gathers : reductions).record());
            (i % 2 == 0 ? reductions : gathers).submit([&value] { value /= 2; });
            expected = expected * static_cast<double>(comm.size()) / 2;
            (i % 2 == 0 ? gathers : reductions).wait((i % 2 == 0 ? reductions : gathers).record());
        }
        world.drain();
        CHECK(value == expected);
        world.finish();
    }
}

TEST_CASE("mpi: an error in one lane is thrown by its next wait, and the other lane goes on") {
    if (mpi::Environment::size() == 1) { return; }
    for (const bool of_reductions : {false, true}) {
        CAPTURE(of_reductions);
        mpi::World world(MPI_COMM_WORLD, patient({.overlap = true}));
        const Comm comm(world);
        const auto failing = of_reductions ? world.reduction_stream() : world.communication_stream();
        const auto other = of_reductions ? world.communication_stream() : world.reduction_stream();
        std::vector<float> values(12, 1.0F);
        const std::span<float> all(values);
        const auto disagree = [&] {
            all_reduce_in_place(comm, ReduceOp::sum, comm.rank() == 0 ? all.first(3) : all, failing);
        };
        disagree();
        double sum = 1;
        all_reduce_in_place(comm, ReduceOp::sum, std::span<double>(&sum, 1), other);
        CHECK_NOTHROW(other.synchronize());
        CHECK(sum == static_cast<double>(comm.size()));
        CHECK_THROWS_WITH_AS(failing.synchronize(), doctest::Contains("the ranks disagree in call 0"), CommError);
        CHECK_NOTHROW(failing.synchronize());
        // A verb of an inline stream comes behind both lanes.
        disagree();
        CHECK_THROWS_WITH_AS(barrier(comm, {}), doctest::Contains("the ranks disagree in call 1"), CommError);
        CHECK_NOTHROW(check_all_reduce<float, float>(comm, 100, 1));
        disagree();
        CHECK_THROWS_WITH_AS(world.drain(), doctest::Contains("the ranks disagree in call "), CommError);
        world.finish();
    }
}

TEST_CASE("mpi: reductions and gathers are in one lane where they are not to be apart") {
    mpi::World world(MPI_COMM_WORLD, patient({.overlap = true, .separate_reductions = false}));
    const Comm comm(world);
    CHECK(world.world_group().channels.size() == 1);
    double value = 1;
    const std::span<double> one(&value, 1);
    double expected = 1;
    for (int i = 0; i < 50; ++i) {
        all_reduce_in_place(comm, ReduceOp::sum, one, world.communication_stream());
        world.reduction_stream().submit([&value] { value /= 2; });
        expected = expected * static_cast<double>(comm.size()) / 2;
    }
    world.drain();
    CHECK(value == expected);
    world.finish();
}

}  // namespace reduction_lane_test
