// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/communicator.hpp>
#include <shardkit/backend/threads/launch.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/verbs/split.hpp>

#include "overlaps.hpp"
#include "rank_checks.hpp"
#include "verb_checks.hpp"

namespace threads_allocation_test {

namespace {

// Per thread, because doctest and other ranks may allocate whenever they like.
thread_local std::size_t allocations = 0;
std::atomic<std::ptrdiff_t> living = 0;  // of all threads
std::atomic<std::size_t> in_all = 0;

void* counted(std::size_t size) {
    ++allocations;
    ++in_all;
    ++living;
    if (void* memory = std::malloc(size == 0 ? 1 : size)) { return memory; }
    throw std::bad_alloc();
}
void freed(void* memory) noexcept {
    if (memory != nullptr) { --living; }
    std::free(memory);
}

}  // namespace

}  // namespace threads_allocation_test

void* operator new(std::size_t size) { return threads_allocation_test::counted(size); }
void* operator new[](std::size_t size) { return threads_allocation_test::counted(size); }
// A sanitizer's own form of this one would not fit the operators below.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
    return threads_allocation_test::counted(size);
}
void operator delete(void* memory) noexcept { threads_allocation_test::freed(memory); }
void operator delete[](void* memory) noexcept { threads_allocation_test::freed(memory); }
void operator delete(void* memory, std::size_t) noexcept { threads_allocation_test::freed(memory); }
void operator delete[](void* memory, std::size_t) noexcept { threads_allocation_test::freed(memory); }

namespace threads_allocation_test {

TEST_CASE("threads: verbs allocate nothing, not even on their first call, in the rank's thread or on its streams") {
    using namespace shardkit;
    const auto check = [](const shardkit::Communicator& world, const shardkit::Stream& stream) {
        const shardkit::Communicator dp = split(world, 0, world.rank(), "dp");
        const shardkit::Communicator copy = dp;
        std::vector<float> a(3000, 1.0F);
        std::vector<float> b(3000);
        std::vector<bf16> half(3000);
        const std::span<const float> in(a);
        const std::span<float> out(b);
        const std::array<std::size_t, 3> sends{1000, 900 + 100 * dp.rank(), 1100 - 100 * dp.rank()};
        const std::array<std::size_t, 3> receives = std::array<std::array<std::size_t, 3>, 3>{
            {{1000, 1000, 1000}, {900, 1000, 1100}, {1100, 1000, 900}}}[dp.rank()];
        const std::size_t next = (dp.rank() + 1) % 3;
        const std::size_t previous = (dp.rank() + 2) % 3;
        barrier(world, {});
        const std::size_t before = allocations;
        const std::size_t before_in_all = in_all;
        rank_checks::expect(before > 0 && before_in_all >= before, "the counters count");
        barrier(world, {});
        all_gather(copy, in.first(1000), out, stream);
        all_gather_in_place(dp, out, stream);
        reduce_scatter(dp, ReduceOp::sum, in, out.first(1000), stream);
        reduce_scatter(dp, ReduceOp::sum, std::span<const bf16>(half), out.first(1000), stream);
        reduce_scatter_in_place(dp, ReduceOp::sum, out, stream);
        all_reduce(dp, ReduceOp::max, in, out, stream);
        all_reduce_in_place(dp, ReduceOp::min, std::span<bf16>(half), stream);
        broadcast(dp, out, 2, stream);
        all_to_all(dp, in, out, stream);
        all_to_all_uneven(dp, in, sends, out, receives, stream);
        send_receive(dp, in, next, out, previous, stream);
        if (dp.rank() == 0) { send(dp, in, 1, stream); }
        if (dp.rank() == 1) { receive(dp, out, 0, stream); }
        barrier(dp, stream);
        stream.synchronize();
        rank_checks::expect(allocations == before, "no allocation, got ", allocations - before);
        barrier(world, {});
        rank_checks::expect(in_all == before_in_all, "nor in another thread, got ", in_all - before_in_all);
        barrier(world, {});
    };
    threads::launch(3, [&](const shardkit::Communicator& world) { check(world, {}); });
    threads::launch(
        3,
        [&](const shardkit::Communicator& world) {
            check(world, world.communication_stream());
            check(world, world.reduction_stream());
        },
        rank_checks::on_threads);
}

TEST_CASE("threads: what splits and ranks in a loop take is given back, and handles may live longer than a World") {
    using namespace shardkit;
    for (const threads::LaunchOptions& options : {threads::LaunchOptions{}, rank_checks::on_threads}) {
        std::vector<shardkit::Communicator> kept;
        std::ptrdiff_t after_few = 0;
        const auto on_rank = [&](const shardkit::Communicator& world) {
            const auto loop = [&](int times) {
                for (int i = 0; i < times; ++i) {
                    const shardkit::Communicator half = split(world, world.rank() % 2, 0, "half");
                    barrier(half, world.reduction_stream());
                    const shardkit::Communicator copy = half.named("copy");
                    const shardkit::Communicator alone = split(half, half.rank(), 0, "alone");
                    MeshRank<DeviceMesh<2, 2>> rank{DeviceMesh<2, 2>{}, world};
                    barrier(rank.template sub_mesh<Axes<Dp>>(), {});
                    barrier(copy, {});
                }
                world.reduction_stream().synchronize();
                barrier(world, {});
                split(world, 0, 0, "after them");  // which frees groups that a stream used when their handles ended
                barrier(world, {});
            };
            loop(3);
            const shardkit::Communicator last = split(world, 0, 0, "last");
            barrier(world, {});  // each rank's part of it is there
            if (world.rank() == 0) {
                kept.push_back(last);
                after_few = living;
            }
            barrier(world, {});
            loop(50);
            if (world.rank() == 0) {
                rank_checks::expect(living < after_few + 10, "everything is given back, not ", living - after_few);
            }
            barrier(world, {});
        };
        threads::launch(4, on_rank, options);
        kept.clear();
    }
}

}  // namespace threads_allocation_test
