// SPDX-License-Identifier: Apache-2.0
// Calls that two ranks as threads put off, of which one comes late: 1 when a result is wrong, or an error comes.
// Built against headers in which one wait is missing.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

#include <shardkit/backend/host/deferred_queue.hpp>
#include <shardkit/backend/host/helpers.hpp>
#include <shardkit/backend/shared/parts.hpp>
#include <shardkit/backend/threads/launch.hpp>
#include <shardkit/comm/all_gather.hpp>
#include <shardkit/comm/all_reduce.hpp>
#include <shardkit/comm/send_receive.hpp>

namespace {

namespace sk = shardkit;
using Comm = sk::threads::Communicator;

void come_late(const Comm& world) {
    if (world.rank() == 1) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }
}
void add(const Comm& world, std::vector<double>& values) {
    sk::all_reduce_in_place(world, sk::ReduceOp::sum, std::span<double>(values), world.reduction_stream());
}

/// f(world), which says whether all is well, on two ranks, with helpers or without.
template <class F>
bool fails(const char* what, std::size_t helpers, const F& f) {
    std::vector<char> well(2);
    try {
        sk::threads::launch(2, [&](const Comm& world) { well[world.rank()] = f(world) ? 1 : 0; },
                            {.overlap = sk::threads::Overlap::deferred, .helpers = helpers});
    } catch (const std::exception& error) {
        std::printf("%s: %s\n", what, error.what());
        return true;
    }
    if (well[0] == 0 || well[1] == 0) { std::printf("%s: wrong\n", what); }
    return well[0] == 0 || well[1] == 0;
}
template <class F>
bool fails(const char* what, const F& f) {
    return fails(what, 0, f) || fails(what, 2, f);
}
bool all_are(const std::vector<double>& values, double expected) {
    for (const double value : values) {
        if (value != expected) { return false; }
    }
    return true;
}

/// Whether a rank's do_pieces() returns while another rank is at a piece, which takes until then or half a second.
bool a_rank_ends_before_a_piece() {
    sk::shared::detail::Parts parts(2);
    parts.begin(0);
    parts.begin(1);
    std::atomic<bool> begun{false};
    std::atomic<bool> returned{false};
    bool early = false;
    std::thread slow([&] {
        parts.do_pieces(1, 1, 1, [&](std::size_t, std::size_t) {
            begun = true;
            for (int ms = 0; ms < 500 && !returned; ++ms) {
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
            early = returned;
        });
    });
    while (!begun) { std::this_thread::yield(); }
    parts.do_pieces(0, 1, 1, [](std::size_t, std::size_t) {});
    returned = true;
    slow.join();
    if (early) { std::puts("pieces that a peer has taken: returned before they were done"); }
    return early;
}

/// Whether a wait ends before a command that a helper is at, or that before who assists it.
bool a_wait_or_a_helper_ends_early() {
    using namespace sk::host::detail;
    Bell bell;
    DeferredQueue queue(&bell);
    Helpers helpers(bell);
    helpers.start(1, {&queue});
    std::atomic<bool> begun{false};
    std::atomic<bool> assisted{false};
    std::atomic<bool> out{false};
    std::atomic<bool> ended{false};
    std::atomic<bool> early{false};
    const auto sleep = [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
    queue.make_way({});
    queue.submit_begun(
        [&](const Run& run) {
            if (run.assists) {
                assisted = true;
                sleep();
                out = true;
                return;
            }
            begun = true;
            for (int ms = 0; ms < 500 && !assisted; ++ms) {
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
            run.door.close();
            early = assisted && !out;
            sleep();
            ended = true;
        },
        {});
    queue.may_run(1);
    bell.ring();
    while (!begun) { std::this_thread::yield(); }
    queue.wait(1);
    const bool before = !ended;
    while (!ended) { sleep(); }
    if (before) { std::puts("a wait ended before the helper's command"); }
    if (early) { std::puts("a command ended before its assistant's part"); }
    return before || early;
}

/// Whether what a rank has put off, which fails then, is dropped with its streams.
bool drops_what_a_failed_rank_put_off() {
    std::atomic<bool> ran{false};
    try {
        sk::threads::launch(1,
                            [&](const Comm& world) {
                                world.communication_stream().submit([&ran] { ran = true; });
                                throw std::runtime_error("planted");
                            },
                            {.overlap = sk::threads::Overlap::deferred});
    } catch (const std::runtime_error&) {}  // as it should be
    if (!ran) { std::puts("what a failed rank has put off was dropped"); }
    return !ran;
}

/// Whether a command is run twice, or out of turn, where helpers and who waits come to it.
bool commands_run_twice() {
    using namespace sk::host::detail;
    Bell bell;
    DeferredQueue queue(&bell, 100);
    Helpers helpers(bell);
    helpers.start(3, {&queue});
    std::atomic<int> runs{0};
    std::atomic<bool> wrong{false};
    for (int i = 0; i < 20000; ++i) {
        queue.make_way({});
        queue.submit_begun(
            [&runs, &wrong, i](const Run& run) {
                if (!run.assists && runs++ != i) { wrong = true; }
            },
            {});
        queue.may_run(queue.submitted());
        bell.ring();
        if (i % 3 == 0) { queue.wait(queue.submitted()); }
        if (wrong) { break; }
    }
    queue.wait(queue.submitted());
    if (wrong) { std::puts("a command ran twice, or out of turn"); }
    return wrong;
}

}  // namespace

int main() {
    std::thread([] {
        std::this_thread::sleep_for(std::chrono::seconds(20));
        std::puts("it does not end");
        std::_Exit(1);
    }).detach();
    const auto sees_early = [](const char* what, const auto& wait) {
        return fails(what, [&](const Comm& world) {
            std::vector<double> values(1000, 1.0);
            come_late(world);
            add(world, values);
            wait(world.reduction_stream().record());
            const bool well = all_are(values, 2);
            world.reduction_stream().synchronize();
            return well;
        });
    };
    using Stream = Comm::Stream;
    const bool event =
        sees_early("a rank waits for an event", [](const Stream::Event& given) { Stream().wait(given); });
    const bool settled =
        sees_early("a rank settles an event", [](const Stream::Event& given) { Stream().settle(given); });
    const bool chain = fails("calls that use each other's results", [](const Comm& world) {
        std::vector<double> values(10, 1.0);  // which travel with the call
        for (int i = 0; i < 3; ++i) {
            come_late(world);
            add(world, values);
        }
        world.reduction_stream().synchronize();
        return all_are(values, 8);
    });
    const bool many = fails("more calls than peers can be behind", [](const Comm& world) {
        bool well = true;
        for (int round = 0; round < 20; ++round) {
            std::vector<std::vector<double>> values(12, std::vector<double>(1000, 1.0 + round));
            for (auto& each : values) {
                if (round % 3 == 0) { come_late(world); }
                add(world, each);
                if (world.rank() == 0) { world.reduction_stream().synchronize(); }
            }
            world.reduction_stream().synchronize();
            for (const auto& each : values) { well = well && all_are(each, 2.0 + 2 * round); }
        }
        return well;
    });
    const bool pieces = a_rank_ends_before_a_piece();
    const bool message = fails("a message behind a sum", [](const Comm& world) {
        std::vector<double> values(1000, 1.0);
        std::vector<double> other(1000);
        come_late(world);
        add(world, values);
        sk::send_receive(world, std::span<const double>(values), 1 - world.rank(), std::span<double>(other),
                         1 - world.rank(), world.reduction_stream());
        world.reduction_stream().synchronize();
        return all_are(other, 2);
    });
    const bool dropped = drops_what_a_failed_rank_put_off();
    const bool early = a_wait_or_a_helper_ends_early();
    const bool twice = commands_run_twice();
    return event || settled || dropped || chain || many || pieces || message || early || twice ? 1 : 0;
}
