// SPDX-License-Identifier: Apache-2.0
// Calls on the streams of two ranks as threads, of which one comes late: 1 when the other did not wait for it. Built
// against headers in which one wait is missing.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <span>
#include <thread>
#include <vector>

#include <shardkit/backend/threads/launch.hpp>
#include <shardkit/comm/all_reduce.hpp>

namespace {

namespace sk = shardkit;
using Comm = sk::threads::Communicator;

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

void doubled(const Comm& world, std::span<double> values, const Comm::Stream& stream) {
    sk::all_reduce_in_place(world, sk::ReduceOp::sum, values, stream);
}

}  // namespace

int main() {
    const bool event = fails("a rank waits for an event", 2, [](const Comm& world, std::span<double> values) {
        come_late(world);
        doubled(world, values, world.communication_stream());
        Comm::Stream().wait(world.communication_stream().record());
        return values.back();
    });
    const bool end = fails("a rank waits for a stream", 2, [](const Comm& world, std::span<double> values) {
        come_late(world);
        doubled(world, values, world.reduction_stream());
        world.reduction_stream().synchronize();
        return values.back();
    });
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
    return event || end || other || rest ? 1 : 0;
}
