// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/engine.hpp>
#include <shardkit/backend/threads/launch.hpp>
#include <shardkit/comm/split.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/rank/rank.hpp>

#include "rank_checks.hpp"
#include "verb_checks.hpp"

namespace threads_allocation_test {

namespace {

// Per thread, because doctest and other ranks may allocate whenever they like.
thread_local std::size_t allocations = 0;
std::atomic<std::ptrdiff_t> living = 0;  // of all threads

void* counted(std::size_t size) {
    ++allocations;
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
void operator delete(void* memory) noexcept { threads_allocation_test::freed(memory); }
void operator delete[](void* memory) noexcept { threads_allocation_test::freed(memory); }
void operator delete(void* memory, std::size_t) noexcept { threads_allocation_test::freed(memory); }
void operator delete[](void* memory, std::size_t) noexcept { threads_allocation_test::freed(memory); }

namespace threads_allocation_test {

TEST_CASE("threads: verbs allocate nothing, not even on their first call") {
    using namespace shardkit;
    threads::launch(3, [](const threads::Communicator& world) {
        const threads::Communicator dp = split(world, 0, world.rank(), "dp");
        const threads::Communicator copy = dp;
        std::vector<float> a(3000, 1.0F);
        std::vector<float> b(3000);
        std::vector<bf16> half(3000);
        const std::span<const float> in(a);
        const std::span<float> out(b);
        const std::size_t next = (dp.rank() + 1) % 3;
        const std::size_t previous = (dp.rank() + 2) % 3;
        const std::size_t before = allocations;
        rank_checks::expect(before > 0, "the counter counts");
        all_gather(copy, in.first(1000), out, {});
        all_gather_in_place(dp, out, {});
        reduce_scatter(dp, ReduceOp::sum, in, out.first(1000), {});
        reduce_scatter(dp, ReduceOp::sum, std::span<const bf16>(half), out.first(1000), {});
        reduce_scatter_in_place(dp, ReduceOp::sum, out, {});
        all_reduce(dp, ReduceOp::max, in, out, {});
        all_reduce_in_place(dp, ReduceOp::min, std::span<bf16>(half), {});
        broadcast(dp, out, 2, {});
        all_to_all(dp, in, out, {});
        send_receive(dp, in, next, out, previous, {});
        if (dp.rank() == 0) { send(dp, in, 1, {}); }
        if (dp.rank() == 1) { receive(dp, out, 0, {}); }
        barrier(dp, {});
        rank_checks::expect(allocations == before, "no allocation, got ", allocations - before);
    });
}

TEST_CASE("threads: what splits and ranks in a loop take is given back, and handles may live longer than a World") {
    using namespace shardkit;
    std::vector<threads::Communicator> kept;
    std::ptrdiff_t after_few = 0;
    threads::launch(4, [&](const threads::Communicator& world) {
        const auto loop = [&](int times) {
            for (int i = 0; i < times; ++i) {
                const threads::Communicator half = split(world, world.rank() % 2, 0, "half");
                const threads::Communicator copy = half.named("copy");
                const threads::Communicator alone = split(half, half.rank(), 0, "alone");
                Rank<threads::Engine, DeviceMesh<2, 2>> rank{DeviceMesh<2, 2>{}, world};
                barrier(rank.template sub_mesh<Axes<Dp>>(), {});
                barrier(copy, {});
            }
            barrier(world, {});
        };
        loop(3);
        const threads::Communicator last = split(world, 0, 0, "last");
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
    });
    kept.clear();
}

}  // namespace threads_allocation_test
