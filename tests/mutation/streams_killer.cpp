// SPDX-License-Identifier: Apache-2.0
// Calls on the streams of two ranks as threads, of which one comes late, and queues that are full or have failed: 1
// when one did not wait for the other. Built against headers in which one wait is missing.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <numeric>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

#include <shardkit/backend/host/command_queue.hpp>
#include <shardkit/backend/threads/launch.hpp>
#include <shardkit/verbs/all_reduce.hpp>

namespace {

namespace sk = shardkit;
using Comm = sk::Communicator;

void come_late(const Comm& world) {
    if (world.rank() == 1) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }
}

/// f(rank's communicator, values) doubles the ones in `values`, which outlive the ranks, `times` times.
template <class F>
bool fails(const char* what, double expected, const F& f) {
    std::vector<std::vector<double>> values(2, std::vector<double>(1000, 1.0));
    std::vector<double> seen(2);
    try {
        sk::threads::launch(
            2, [&](const Comm& world) { seen[world.rank()] = f(world, std::span<double>(values[world.rank()])); },
            {.overlap = sk::threads::Overlap::threads});
    } catch (const std::exception& error) {
        std::printf("%s: %s\n", what, error.what());
        return true;
    }
    for (const double value : {values[0].back(), values[1].back(), seen[0], seen[1]}) {
        if (value == expected) { continue; }
        std::printf("%s: %g, expected %g\n", what, value, expected);
        return true;
    }
    return false;
}

void doubled(const Comm& world, std::span<double> values, const shardkit::Stream& stream) {
    sk::all_reduce_in_place(world, sk::ReduceOp::sum, values, stream);
}

/// Whether commands are lost, or run out of turn, where more are submitted than the queue has room for.
bool loses_commands() {
    using sk::host::detail::CommandQueue;
    constexpr std::size_t count = CommandQueue::slots + 10;
    std::vector<std::size_t> order;
    order.reserve(count);
    CommandQueue queue;
    queue.submit([] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
    for (std::size_t i = 0; i < count; ++i) {
        queue.submit([&order, i] { order.push_back(i); });
    }
    queue.wait(queue.submitted());
    std::vector<std::size_t> expected(count);
    std::iota(expected.begin(), expected.end(), 0U);
    if (order != expected) { std::puts("a full queue lost a command"); }
    return order != expected;
}

/// Whether commands run that were given behind one that failed, or the failure is not told. In many rounds, since a
/// queue's own thread may have dropped them all before the one that waits is told; that one looks without sleeping.
bool goes_on_behind_a_failure() {
    using sk::host::detail::CommandQueue;
    for (int round = 0; round < 2000; ++round) {
        std::atomic<bool> runs{false};
        std::atomic<bool> may_fail{false};
        bool told = false;
        CommandQueue queue(1U << 20U);
        queue.submit([&may_fail] {
            while (!may_fail) { std::this_thread::yield(); }
            throw std::runtime_error("planted");
        });
        for (std::size_t i = 0; i + 2 < CommandQueue::slots; ++i) {
            queue.submit([&runs] { runs = true; });
        }
        may_fail = true;
        try {
            queue.wait(1);
        } catch (const std::runtime_error&) { told = true; }
        queue.wait(queue.submitted());
        if (runs || !told) {
            std::puts("a failure was not told, or a command ran behind it");
            return true;
        }
    }
    return false;
}

}  // namespace

int main() {
    if (loses_commands() || goes_on_behind_a_failure()) { return 1; }
    const auto sees_early = [](const char* what, const auto& stream_of, const auto& wait) {
        return fails(what, 2, [&](const Comm& world, std::span<double> values) {
            come_late(world);
            doubled(world, values, stream_of(world));
            wait(stream_of(world));
            return values.back();
        });
    };
    const auto communication = [](const Comm& world) { return world.communication_stream(); };
    const auto reduction = [](const Comm& world) { return world.reduction_stream(); };
    using Stream = shardkit::Stream;
    const bool event = sees_early("a rank waits for an event", communication,
                                  [](const Stream& stream) { Stream().wait(stream.record()); });
    const bool end =
        sees_early("a rank waits for a stream", reduction, [](const Stream& stream) { stream.synchronize(); });
    const bool own_event = sees_early("a rank waits for an event of a stream", reduction,
                                      [](const Stream& stream) { stream.synchronize(stream.record()); });
    const bool settled_event = sees_early("a rank settles an event", communication,
                                          [](const Stream& stream) { Stream().settle(stream.record()); });
    const bool settled =
        sees_early("a rank settles a stream", reduction, [](const Stream& stream) { stream.settle(); });
    const bool other = fails("a stream waits for the other", 2, [](const Comm& world, std::span<double> values) {
        come_late(world);
        doubled(world, values, world.communication_stream());
        world.reduction_stream().wait(world.communication_stream().record());
        double seen = 0;
        world.reduction_stream().submit([at = &values.back(), to = &seen] { *to = *at; });
        world.reduction_stream().synchronize();
        return seen;
    });
    std::atomic<bool> returns = false;
    const bool rest = fails("a rank has returned", 2, [&](const Comm& world, std::span<double> values) {
        while (world.rank() == 1 && !returns) { std::this_thread::yield(); }
        come_late(world);
        doubled(world, values, world.communication_stream());
        returns = true;
        return 2.0;
    });
    return event || end || own_event || other || settled_event || settled || rest ? 1 : 0;
}
