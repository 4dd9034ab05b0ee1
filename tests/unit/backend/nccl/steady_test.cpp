// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstddef>
#include <optional>
#include <span>
#include <thread>

#include <doctest/doctest.h>

#include <shardkit/backend/nccl/native.hpp>
#include <shardkit/backend/nccl/run.hpp>
#include <shardkit/mesh/axes.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/verbs/split.hpp>

#include "../verb_checks.hpp"
#include "alone.hpp"
#include "gpu_ranks.hpp"

namespace steady_test {

namespace {

using namespace shardkit;
using namespace verb_checks;
using gpu_ranks::Comm;

}  // namespace

TEST_CASE("nccl: after construction verbs make no communicator and take no memory") {
    for (const standin::Pace pace : gpu_ranks::paces) {
        gpu_ranks::restart(pace);
        constexpr std::size_t ranks = 4;
        constexpr std::size_t k = 777;
        std::atomic<std::size_t> ready = 0;
        const auto outcomes =
            gpu_ranks::with_world(ranks, gpu_ranks::patient(), [&](const Comm& world, nccl::World&) {
                const auto stream = verb_values::Bench<Comm>::stream(world);
                const Comm pairs = split(world, world.rank() / 2, world.rank() % 2, "pairs");
                auto shard = world.buffer<float>(k);
                auto full = world.buffer<float>(ranks * k);
                auto half = world.buffer<bf16>(ranks * k);
                const std::span<const bf16> halves = half.span();
                stream.synchronize();
                if (++ready == ranks) {
                    standin::reset_calls();
                    ready = 2 * ranks;
                }
                while (ready < 2 * ranks) { std::this_thread::yield(); }
                for (int step = 0; step < 5; ++step) {
                    all_gather(world, std::span<const float>(shard.span()), full.span(), stream);
                    reduce_scatter(world, ReduceOp::sum, halves, shard.span(), stream);
                    reduce_scatter_in_place(pairs, ReduceOp::sum, half.span(), stream);
                    all_reduce_in_place(world, ReduceOp::max, full.span().first(3), stream);
                    all_reduce_in_place(pairs, ReduceOp::sum, full.span(), stream);
                    broadcast(world, full.span(), 1, stream);
                    barrier(pairs, stream);
                    stream.synchronize();
                }
            });
        CHECK(gpu_ranks::first_error(outcomes) == "");
        for (const char* const call :
             {"cudaMalloc", "cudaMallocHost", "cudaHostAlloc", "cudaStreamCreateWithFlags",
              "cudaStreamCreateWithPriority", "cudaEventCreateWithFlags", "ncclMemAlloc", "ncclCommInitRank",
              "ncclCommInitRankConfig", "ncclCommSplit", "ncclCommRegister"}) {
            CAPTURE(call);
            CHECK(standin::calls(call) == 0);
        }
        CHECK(standin::calls("ncclReduceScatter") == ranks * 5 * 2);
        CHECK(standin::order_violations().empty());
    }
}

TEST_CASE("nccl: what splits and ranks in a loop take is given out again once no rank uses it") {
    for (const CompareCalls compared : {CompareCalls::off, CompareCalls::each_call}) {
        gpu_ranks::restart();
        nccl::Options options = gpu_ranks::patient();
        options.compare_calls = compared;
        constexpr std::size_t ranks = 5;
        Alone alone(ranks);
        standin::Live after_few;
        standin::Live after_many;
        const auto outcomes = gpu_ranks::with_world(ranks, options, [&](const Comm& world, nccl::World& handle) {
            const std::size_t r = world.rank();
            const auto loop = [&](std::size_t times) {
                for (std::size_t i = 0; i < times; ++i) {
                    // The last rank is alone.
                    const Comm pairs = split(world, r / 2, r % 2, "pairs");
                    const Comm copy = pairs.named("copy");
                    const Comm single = split(pairs, pairs.rank(), 0, "single");
                    const Comm reversed = split(world, 0, ranks - r, "reversed");
                    expect(pairs.size() == (r == 4 ? 1 : 2) && single.size() == 1, "sizes");
                    expect(reversed.rank() == ranks - 1 - r, "another order is another group");
                    check_all_reduce<float, float>(copy, 10, 1);
                    MeshRank<DeviceMesh<dynamic>> rank(DeviceMesh{ranks}, world, {}, handle.streams());
                    check_all_gather<float>(rank.template sub_mesh<Axes<Dp>>(), 3, 1);
                }
            };
            loop(2);
            const std::size_t groups = handle.state().groups().size();
            alone(r, 0, [&] { after_few = standin::live(); });
            loop(20);
            expect(handle.state().groups().size() == groups, "no more groups, not ", handle.state().groups().size());
            alone(r, 1, [&] { after_many = standin::live(); });

            // One that a single member keeps is nobody's to have again, and goes on beside the new one.
            std::optional<Comm> kept = split(world, r / 2, r % 2, "kept");
            const ncclComm_t native = nccl::native(*kept);
            if (r != 0) { kept.reset(); }
            std::optional<Comm> other = split(world, r / 2, r % 2, "other");
            expect(r == 4 || (nccl::native(*other) == native) == (r > 1), "another one for the first pair alone");
            check_all_reduce<float, float>(*other, 10, 1);
            other.reset();
            const Comm again = split(world, r / 2, r % 2, "again");
            expect(r == 4 || (nccl::native(again) == native) == (r > 1), "still in use");
            check_all_reduce<float, float>(again, 10, 1);
        });
        CHECK(gpu_ranks::first_error(outcomes) == "");
        CHECK(after_few.communicators > 0);
        CHECK(after_many.communicators == after_few.communicators);
        CHECK(after_many.device_allocations == after_few.device_allocations);
        CHECK(after_many.host_allocations == after_few.host_allocations);
        CHECK(standin::live() == standin::Live{});
    }
}

TEST_CASE("nccl: a verb that goes through the whole of NCCL's non-blocking states is waited for") {
    gpu_ranks::restart();
    standin::set_in_progress_polls(5);
    const auto outcomes = gpu_ranks::with_world(3, gpu_ranks::patient(), [](const Comm& world, nccl::World&) {
        const Comm reversed = split(world, 0, world.size() - world.rank(), "reversed");
        check_copies<float>(reversed, 10, 1);
        check_reduce_scatter<bf16, float>(world, 10, 1);
    });
    CHECK(gpu_ranks::first_error(outcomes) == "");
}

TEST_CASE("nccl: run makes a Rank, and its error is every rank's") {
    gpu_ranks::restart();
    const nccl::UniqueId id = nccl::UniqueId::create();
    const auto run = [&](auto mesh, const nccl::Options& options, auto f) {
        return gpu_ranks::each_in_a_thread(4, [&](std::size_t rank) {
            nccl::World world(id, 4, rank, options);
            nccl::run(mesh, world, f);
        });
    };
    CHECK(gpu_ranks::first_error(run(DeviceMesh<2, 2>{}, gpu_ranks::patient(), [](auto& rank) {
              const auto dp = rank.template sub_mesh<Axes<Dp>>();
              expect(dp.size() == 2, "two data ranks");
              check_all_reduce<float, float>(dp, 100, 1);
          })) == "");
    CHECK(standin::live() == standin::Live{});

    const auto outcomes = run(DeviceMesh<4>{}, gpu_ranks::impatient(), [](auto& rank) {
        if (rank.rank() == 3) { throw rank_checks::Planted("planted"); }
        check_all_reduce<float, float>(rank.world(), 100, 1);
    });
    CHECK(outcomes[3].kind == rank_checks::Kind::planted);
    for (std::size_t rank = 0; rank < 3; ++rank) { CHECK(outcomes[rank].kind == rank_checks::Kind::comm); }
    CHECK(standin::live().communicators == 0);

    const auto misfits = run(DeviceMesh<3>{}, gpu_ranks::impatient(), [](auto&) {});
    CHECK(rank_checks::contains(misfits[0].text, "has 3 ranks, but the nccl world has 4"));
}

}  // namespace steady_test
