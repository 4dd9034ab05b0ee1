// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <thread>

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/nccl/borrowed_communicator.hpp>
#include <shardkit/backend/nccl/native.hpp>
#include <shardkit/backend/nccl/options.hpp>
#include <shardkit/backend/nccl/shrink.hpp>
#include <shardkit/backend/nccl/world.hpp>
#include <shardkit/verbs/all_reduce.hpp>

#include "../unit/backend/nccl/captured_step.hpp"
#include "../unit/backend/rank_checks.hpp"
#include "closed_forms.hpp"
#include "rank_processes.hpp"

// What a rank does when the last one is gone without a word, and memory that NCCL knows.

namespace sk = shardkit;
using rank_processes::Kernels;
using rank_processes::on_ranks;
using rank_processes::Place;

namespace {

constexpr std::chrono::seconds time_to_end{20};  // connecting to nobody and ending communicators included

bool is_last(const Place& place) { return place.rank + 1 == place.ranks; }

/// Sums for which the host does not wait.
void sum(sk::nccl::World& world, const sk::HostBuffer<float>& values) {
    const shardkit::gpu::TimelineRef stream(world.streams().communication);
    sk::all_reduce_in_place(sk::Communicator(world), sk::ReduceOp::sum, values.span(), stream);
}
void sum_and_wait(sk::nccl::World& world, const sk::HostBuffer<float>& values) {
    sum(world, values);
    world.streams().communication.synchronize();
}

void end_process() { std::_Exit(0); }

/// The last rank's process is `gone` without a word once `before` is over on it; on the others `after` throws a
/// CommError, in time.
template <class Before, class After>
void check_last_is_gone(const Place& place, sk::nccl::World& world, const Before& before, const After& after,
                        void (*gone)() = end_process) {
    before();
    if (is_last(place)) { gone(); }
    const auto waits = rank_processes::short_deadline(world);
    const auto took = rank_checks::duration_of([&] { CHECK_THROWS_AS(after(), sk::CommError); });
    CHECK(took < rank_processes::time_for_the_dead + time_to_end);
}

void check_verbs_with(const Place& place, sk::nccl::Registration registration) {
    sk::nccl::Options options = place.options();
    options.registration = registration;
    sk::nccl::World world(place.id, place.ranks, place.rank, options);
    closed_forms::check_verbs<float, Kernels>(sk::Communicator(world));
    closed_forms::check_verbs<sk::bf16, Kernels>(sk::Communicator(world));
    world.finish();
}

/// `lost` does not return.
void check_last_is_lost(const Place& place, void (*lost)()) {
    sk::nccl::World world(place.id, place.ranks, place.rank, place.options());
    const auto values = world.communicator().buffer<float>(1000);
    check_last_is_gone(
        place, world, [&] { sum_and_wait(world, values); }, [&] { sum_and_wait(world, values); }, lost);
}

/// Until it is killed.
void wait_for_ever() {
    for (;;) { pause(); }
}

}  // namespace

RANK_CASE("killed") {
    check_last_is_lost(place, [] { static_cast<void>(std::raise(SIGKILL)); });
}
RANK_CASE("stopped") {
    check_last_is_lost(place, [] { static_cast<void>(std::raise(SIGSTOP)); });
}
RANK_CASE("without its GPU") {
    check_last_is_lost(place, [] {
        static_cast<void>(cudaDeviceReset());
        wait_for_ever();
    });
}

RANK_CASE("a thousand launches") {
    sk::nccl::World connected(place.id, place.ranks, place.rank, place.options());
    sk::nccl::Options options = place.options();
    options.timeout = std::chrono::seconds(1);
    sk::nccl::World world(sk::nccl::Borrow{sk::nccl::native(sk::Communicator(connected))}, options);
    const auto values = world.communicator().buffer<float>(1000);
    sum_and_wait(world, values);
    {
        const auto streams = world.streams();
        const step_trainer::CapturedStep step(streams, [&] {
            const auto sleep = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(3)); };
            sk::gpu::detail::check(cudaLaunchHostFunc(streams.compute.native(), sleep, nullptr),
                                   "cudaLaunchHostFunc");
            streams.communication.wait(streams.compute.record());
            sum(world, values);
        });
        const auto took = rank_checks::duration_of([&] {
            for (int i = 0; i < 1000; ++i) {
                step.launch();
                world.keep_pace(streams.compute);
            }
            streams.compute.synchronize();
        });
        CHECK(took > std::chrono::seconds(3));
    }
    world.finish();
    connected.finish();
}

RANK_CASE("registered") { check_verbs_with(place, sk::nccl::Registration::buffers); }
RANK_CASE("windows") { check_verbs_with(place, sk::nccl::Registration::windows); }

/// `launches` between two verbs, of which eight may be under way: CUDA queues about 1,000.
static void check_loop_ends(const Place& place, int launches) {
    sk::nccl::World world(place.id, place.ranks, place.rank, place.options());
    const auto values = world.communicator().buffer<float>(1000);
    check_last_is_gone(
        place, world, [&] { sum_and_wait(world, values); },
        [&] {
            const shardkit::gpu::TimelineRef compute(world.streams().compute);
            for (std::size_t step = 0; step < 100'000; ++step) {
                for (int i = 0; i < launches; ++i) {
                    sk::gpu::detail::check(cudaMemsetAsync(values.data(), 0, 4, compute.native()), "cudaMemsetAsync");
                }
                world.streams().communication.wait(compute.record());
                sum(world, values);
                compute.wait(world.streams().communication.record());
            }
        });
}
RANK_CASE("a loop without waits") { check_loop_ends(place, 50); }
RANK_CASE("a loop of more launches than CUDA queues") { check_loop_ends(place, 500); }

RANK_CASE("a graph that lives") {
    std::optional<step_trainer::CapturedStep> step;
    {
        sk::nccl::World world(place.id, place.ranks, place.rank, place.options());
        const auto values = world.communicator().buffer<float>(1000);
        check_last_is_gone(
            place, world,
            [&] {
                sum_and_wait(world, values);
                step.emplace(world.streams(), [&] { sum(world, values); });
                step->launch();
                world.streams().compute.synchronize();
            },
            [&] { sum_and_wait(world, values); });
    }
}

RANK_CASE("borrowed") {
    sk::gpu::detail::check(cudaSetDevice(place.options().device), "cudaSetDevice");
    ncclComm_t own = nullptr;
    REQUIRE(ncclCommInitRank(&own, static_cast<int>(place.ranks), sk::nccl::native(place.id),
                             static_cast<int>(place.rank)) == ncclSuccess);
    {
        sk::nccl::World world(sk::nccl::Borrow{own}, place.options());
        const auto values = world.communicator().buffer<float>(1000);
        check_last_is_gone(
            place, world, [&] { sum_and_wait(world, values); }, [&] { sum_and_wait(world, values); });
    }
    CHECK(ncclCommAbort(own) == ncclSuccess);
}

RANK_CASE("survivors") {
    sk::nccl::Options options = place.options();
    options.survivable = true;
    sk::nccl::World world(place.id, place.ranks, place.rank, options);
    const auto values = world.communicator().buffer<float>(1000);
    check_last_is_gone(
        place, world, [&] { sum_and_wait(world, values); }, [&] { sum_and_wait(world, values); });
    const std::array<std::size_t, 1> lost{place.ranks - 1};
    sk::nccl::World left(sk::nccl::Survivors{world, lost}, place.options());
    CHECK(sk::Communicator(left).size() == place.ranks - 1);
    closed_forms::check_verbs<float, Kernels>(sk::Communicator(left));
    left.finish();
}

TEST_CASE("verbs over registered memory give their closed forms") { on_ranks("registered", {2U, 8U}); }

TEST_CASE("verbs over windows give their closed forms") {
    if (rank_processes::shares(2)) {
        skip("windows on ranks that share a GPU");
    } else if (sk::nccl::library_version() < sk::nccl::windows_version) {
        skip("windows need NCCL 2.27.3");
    } else {
        on_ranks("windows", {2U, 8U});
    }
}

TEST_CASE("a loop that never waits ends when a rank is gone") { on_ranks("a loop without waits", {2U}); }
TEST_CASE("a loop that CUDA blocks ends when a rank is gone") {
    on_ranks("a loop of more launches than CUDA queues", {2U});
}
TEST_CASE("a rank that is gone ends the others while a graph lives") { on_ranks("a graph that lives", {2U}); }
TEST_CASE("a rank that is gone ends a World over a lent communicator") { on_ranks("borrowed", {2U}); }

TEST_CASE("a rank that is killed, stopped or without its GPU ends the others") {
    for (const char* how : {"killed", "stopped", "without its GPU"}) {
        on_ranks(how, {2U}, rank_processes::LastRank::is_lost);
    }
}
TEST_CASE("a thousand launches of a graph take longer than the timeout, and are no hang") {
    on_ranks("a thousand launches", {2U});
}

TEST_CASE("the ranks that are left go on") {
    if (sk::nccl::library_version() < sk::nccl::revoke_version) {
        skip("survivors of a failure need NCCL 2.28.7");
    } else {
        on_ranks("survivors", {3U});
    }
}
