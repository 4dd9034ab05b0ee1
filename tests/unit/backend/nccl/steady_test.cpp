// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstddef>
#include <span>
#include <thread>

#include <doctest/doctest.h>

#include <shardkit/backend/nccl/run.hpp>
#include <shardkit/comm/split.hpp>
#include <shardkit/mesh/axes.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "../verb_checks.hpp"
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
            nccl::run<gpu_ranks::Engine>(mesh, world, f);
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
