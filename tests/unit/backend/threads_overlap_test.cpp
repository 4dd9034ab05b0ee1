// SPDX-License-Identifier: Apache-2.0
// Verbs on a rank's streams, with LaunchOptions::overlap. What happens while what else is held up is said by flags
// that ranks set and wait for; no time decides.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/launch.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/verbs/all_to_all.hpp>
#include <shardkit/verbs/send_receive.hpp>
#include <shardkit/verbs/split.hpp>

#include "test_size.hpp"
#include "unit/backend/overlaps.hpp"
#include "unit/thrown_message.hpp"
#include "verb_suite.hpp"

namespace threads_overlap_test {

namespace {

using namespace shardkit;
using namespace rank_checks;
using Comm = shardkit::Communicator;
using threads::launch_and_collect;
using threads::Overlap;
using threads::WaitMode;

/// The same verbs, on a stream.
template <shardkit::Stream (Comm::*Of)() const noexcept>
struct On : Comm {
    On(const Comm& comm) : Comm(comm) {}  // implicit: as the communicator itself
    shardkit::Stream stream() const { return (this->*Of)(); }
};
using OnCommunication = On<&Comm::communication_stream>;
using OnReduction = On<&Comm::reduction_stream>;

/// Rethrows the first error of a launch with overlap.
template <class F>
void launch_overlapped(std::size_t ranks, const LaunchOptions& options, F f) {
    threads::launch(ranks, f, options);
}
template <class F>
std::vector<Outcome> outcomes(std::size_t ranks, const LaunchOptions& options, F f) {
    std::vector<Outcome> all;
    for (const std::exception_ptr& error : launch_and_collect(ranks, f, options)) { all.push_back(outcome(error)); }
    return all;
}

/// What memory holds that another thread may write to just now.
template <class T>
[[gnu::no_sanitize_thread]] T peek(const volatile T& value) {
    return value;
}

/// Waits as the rank's own work does.
void await(const shardkit::Event& event) { shardkit::Stream().wait(event); }

}  // namespace

}  // namespace threads_overlap_test

namespace verb_values {

/// A verb's values are read once its stream has got to it.
template <auto Of>
struct Bench<threads_overlap_test::On<Of>> {
    using C = threads_overlap_test::On<Of>;
    static shardkit::Stream stream(const C& comm) { return comm.stream(); }
    static constexpr verb_oracle::Order all_reduce_order = verb_oracle::Order::upwards;

    template <class T>
    class Memory {
      public:
        Memory(const C& comm, std::span<T> host) : stream_(comm.stream()), host_(host) {}
        ~Memory() { stream_.synchronize(); }
        Memory(Memory&&) noexcept = default;
        T* data() const { return host_.data(); }
        void write(std::span<const T>) { stream_.synchronize(); }
        void read(std::span<T>) { stream_.synchronize(); }

      private:
        shardkit::Stream stream_;
        std::span<T> host_;
    };
};

}  // namespace verb_values

namespace threads_overlap_test {

TEST_CASE("overlap: every verb gives on a stream what it gives in the rank's own thread") {
    LaunchOptions options = on_threads;
    for (const WaitMode waiting : {WaitMode::block, WaitMode::spin_briefly}) {
        options.waiting = waiting;
        for (const std::size_t ranks : {1U, 2U, 3U}) {
            launch_overlapped(ranks, options, [&](const Comm& world) {
                verb_suite::every_verb<float>(OnCommunication(world));
                verb_suite::every_verb<float>(OnReduction(world));
                verb_suite::reductions_into_another_type(OnReduction(world));
                verb_suite::split_orders_members(OnCommunication(world), 0x1B);
                verb_suite::splits_run_at_once(OnReduction(world), 3);
            });
        }
    }
}

TEST_CASE(
    "overlap: results too large for the caches, and in several pieces, have the bits of the rank's own thread") {
    const auto large = []<class T>(const Comm& world, T) {
        using namespace verb_checks;
        constexpr std::size_t count = (std::size_t{12} << 20U) / sizeof(T) + 17;
        static_assert(2 * 2 * count * sizeof(T) > host::detail::streaming_bytes);
        check_all_reduce<T, T>(OnReduction(world), count, 1);
        check_all_gather<T>(OnCommunication(world), count / 2, 3);
    };
    launch_overlapped(2, on_threads, [&](const Comm& world) {
        using namespace verb_checks;
        // Of slow builds fewer elements of as many bytes.
        if (test_size::reduced()) {
            large(world, 1.0);
        } else {
            large(world, 1.0F);
        }
        constexpr std::size_t several = 140'001;
        check_all_reduce<float, float>(OnReduction(world), several, 1);
        check_all_gather<float>(OnCommunication(world), several / 2, 3);
        check_reduce_scatter<float, float>(OnReduction(world), several, 1);
        check_reduce_scatter<bf16, double>(OnReduction(world), several / 2, 1);
        check_copies<double>(OnCommunication(world), several / 2, 1);
    });
}

TEST_CASE("overlap: without it both streams are the rank's own thread") {
    threads::launch(2, [](const Comm& world) {
        expect(world.communication_stream().is_inline() && world.reduction_stream().is_inline(), "no threads");
        barrier(world);
    });
    threads::run(DeviceMesh<2>{}, [](auto& rank) {
        expect(rank.communication_stream().is_inline() && rank.reduction_stream().is_inline(), "no threads");
    });
    threads::run(
        DeviceMesh<2>{},
        [](auto& rank) {
            expect(rank.compute_stream().is_inline() && !rank.communication_stream().is_inline() &&
                       !rank.reduction_stream().is_inline(),
                   "two streams beside the rank's");
        },
        {}, on_threads);
}

TEST_CASE("overlap: a rank goes on while a peer has not come to the gather, and waits where it uses it") {
    Flag returned;
    launch_overlapped(3, on_threads, [&](const Comm& world) {
        std::vector<float> shard(1000, static_cast<float>(world.rank()));
        std::vector<float> full(3000);
        if (world.rank() == 0) { returned.await(2); }
        all_gather(world, std::span<const float>(shard), std::span<float>(full), world.communication_stream());
        const auto gathered = world.communication_stream().record();
        if (world.rank() != 0) { returned.set(); }
        await(gathered);
        for (std::size_t i = 0; i < full.size(); ++i) {
            const std::size_t from = i / 1000;
            expect(full[i] == static_cast<float>(from), "element ", i, ", got ", full[i]);
        }
    });
}

TEST_CASE(
    "overlap: a sum passes a gather over the same ranks that a peer holds up, and a call in the rank's thread both") {
    Flag summed;
    Flag called;
    launch_overlapped(3, on_threads, [&](const Comm& world) {
        std::vector<double> full(300);
        const auto gather = [&] {
            full[100 * world.rank()] = static_cast<double>(world.rank() + 1);
            all_gather_in_place(world, std::span<double>(full), world.communication_stream());
        };
        std::vector<double> sum(100, 1.0);
        const auto reduce = [&] {
            all_reduce_in_place(world, ReduceOp::sum, std::span<double>(sum), world.reduction_stream());
        };
        if (world.rank() != 0) {
            gather();
            reduce();
        }
        double most = static_cast<double>(world.rank());
        all_reduce_in_place(world, ReduceOp::max, std::span<double>(&most, 1), {});
        expect(most == 2, "the largest rank, got ", most);
        called.set();
        called.await(3);
        if (world.rank() == 0) { reduce(); }
        world.reduction_stream().synchronize();
        expect(sum == std::vector<double>(100, 3.0), "a sum of three");
        summed.set();
        summed.await(3);
        if (world.rank() == 0) { gather(); }
        world.communication_stream().synchronize();
        expect(full[0] == 1 && full[100] == 2 && full[200] == 3, "what each gave");
    });
}

TEST_CASE("overlap: calls of a stream and of the rank's own thread do not meet, whatever they are") {
    launch_overlapped(2, on_threads, [](const Comm& world) {
        const std::size_t peer = 1 - world.rank();
        const double me = static_cast<double>(world.rank());
        const auto exchange = [&](const shardkit::Stream& stream, double base) {
            const std::vector<double> sent{base + 10 * me, base + 10 * me + 1};
            std::vector<double> received(2);
            std::vector<double> message(1);
            // Rank 0 gives both elements to rank 1, which gives one back and keeps the other.
            const std::array<std::size_t, 2> sends{1 - peer, 1 + peer};  // rank 0: {0, 2}, rank 1: {1, 1}
            const std::array<std::size_t, 2> receives{2 - 2 * peer, 1};
            std::vector<double> uneven(3 - 2 * peer);
            all_to_all(world, std::span<const double>(sent), std::span<double>(received), stream);
            all_to_all_uneven(world, std::span<const double>(sent), sends, uneven, receives, stream);
            send_receive(world, std::span<const double>(sent).first(1), peer, std::span<double>(message), peer,
                         stream);
            barrier(world, stream);
            stream.synchronize();
            expect(received == std::vector<double>{base + me, base + 10 + me}, "all-to-all, got ", received[0]);
            expect(uneven.front() == base + 10 * (1 - me) && (me == 0 || uneven[2] == base + 11), "an uneven one");
            expect(message[0] == base + 10 * (1 - me), "a message, got ", message[0]);
        };
        for (int i = 0; i < 3; ++i) {
            exchange(world.communication_stream(), 100);
            exchange({}, 200);
            exchange(world.reduction_stream(), 300);
        }
    });
}

TEST_CASE("overlap: a stream that waits for the other's event runs behind it") {
    Flag given;
    launch_overlapped(2, on_threads, [&](const Comm& world) {
        std::vector<double> values(100, 1.0);
        const std::span<double> all(values);
        if (world.rank() == 1) { given.await(); }
        all_reduce_in_place(world, ReduceOp::sum, all, world.communication_stream());
        world.reduction_stream().wait(world.communication_stream().record());
        all_reduce_in_place(world, ReduceOp::sum, all, world.reduction_stream());
        given.set();
        world.reduction_stream().synchronize();
        expect(values == std::vector<double>(100, 4.0), "doubled twice, got ", values[0]);
    });
}

TEST_CASE("overlap: calls on a stream keep their order, and more of them wait than its ring holds") {
    launch_overlapped(3, on_threads, [](const Comm& world) {
        constexpr std::size_t calls = 3 * host::detail::CommandQueue::slots;
        std::vector<double> values(calls, 1.0);
        for (std::size_t i = 0; i < calls; ++i) {
            all_reduce_in_place(world, ReduceOp::sum, std::span<double>(values).subspan(i, 1),
                                i % 2 == 0 ? world.communication_stream() : world.reduction_stream());
            if (i % 100 == 0) { barrier(world, {}); }
        }
        world.communication_stream().synchronize();
        world.reduction_stream().synchronize();
        expect(values == std::vector<double>(calls, 3.0), "each once");
        expect(world.traffic().total(Verb::all_reduce).calls == calls, "and counted when they were given");
    });
}

TEST_CASE(
    "overlap: calls that disagree on a stream are named by the next wait of every rank, once, and write nothing") {
    static const engine::CallSubject first("'blocks.0' gradients");
    static const engine::CallSubject second("'blocks.1' gradients");
    launch_overlapped(3, on_threads, [](const Comm& world) {
        for (const auto& stream : {world.communication_stream(), world.reduction_stream()}) {
            const std::vector<float> values(60, 1.0F);
            std::vector<float> out(60, 7.0F);
            all_reduce(world, ReduceOp::sum, std::span<const float>(values), std::span<float>(out), stream,
                       {SourceLocation::current(), world.rank() == 1 ? &second : &first});
            const std::string text = thrown_message<CommError>([&] { stream.synchronize(); });
            for (const char* part : {"threads: all_reduce over world at ", "threads_overlap_test.cpp:",
                                     "rank 0 calls all_reduce sum of 60 fp32 for 'blocks.0' gradients at ",
                                     "rank 1 calls all_reduce sum of 60 fp32 for 'blocks.1' gradients at "}) {
                expect(contains(text, part), part, ", got ", text);
            }
            expect(out == std::vector<float>(60, 7.0F), "nothing is written");
            stream.synchronize();
            verb_checks::check_all_reduce<float, float>(world, 100, 1);
        }
    });
}

TEST_CASE("overlap: a stream of another rank's is refused with the user's line") {
    constexpr const char* text =
        "threads: the stream is no stream of this rank's; pass a default one, or the communication_stream() or "
        "reduction_stream() of the rank";
    for (const LaunchOptions& options : {LaunchOptions{}, on_threads}) {
        threads::launch(
            2,
            [&](const Comm& world) {
                host::detail::CommandQueue queue;
                const Stream stream(queue);
                std::vector<float> values(60);
                const SourceLocation here = SourceLocation::current();
                const std::string message = thrown_message<UsageError>([&] { barrier(world, stream, here); });
                expect(message == text_at(text, here), message);
                expect(message == thrown_message<UsageError>(
                                      [&] { all_gather_in_place(world, std::span<float>(values), stream, here); }),
                       "the same of a collective");
            },
            options);
    }
}

TEST_CASE("overlap: what a rank gave to its streams runs before it has returned") {
    Flag ended;
    std::vector<std::vector<float>> values(2, std::vector<float>(1000, 1.0F));
    const auto all = outcomes(2, on_threads, [&](const Comm& world) {
        const std::span<float> mine(values[world.rank()]);
        if (world.rank() == 1) { ended.await(); }
        all_reduce_in_place(world, ReduceOp::sum, mine.subspan(500), world.communication_stream());
        all_reduce_in_place(world, ReduceOp::sum, mine.first(500), world.reduction_stream());
        ended.set();
    });
    for (const Outcome& each : all) {
        CAPTURE(each.text);
        CHECK(each.kind == Kind::none);
    }
    for (const auto& each : values) { CHECK(each == std::vector<float>(1000, 2.0F)); }
}

TEST_CASE("overlap: peers that wait on their streams for a rank that throws or returns are told") {
    std::vector<std::vector<float>> values(3, std::vector<float>(301, 1.0F));  // of calls that outlive a function
    for (const bool throws : {true, false}) {
        const auto all = outcomes(3, on_threads, [&](const Comm& world) {
            if (world.rank() == 2) {
                if (throws) { throw Planted("planted"); }
                return;
            }
            const std::span<float> mine(values[world.rank()]);
            all_gather_in_place(world, mine.first(300), world.communication_stream());
            all_reduce_in_place(world, ReduceOp::sum, mine.subspan(300), world.reduction_stream());
            const auto& waited = world.rank() == 0 ? world.communication_stream() : world.reduction_stream();
            waited.synchronize();
        });
        for (const std::size_t rank : {0U, 1U}) {
            CAPTURE(all[rank].text);
            CHECK(all[rank].kind == Kind::peer);
            CHECK(all[rank].rank == 2);
            CHECK(contains(all[rank].text, throws ? "rank 2 failed: planted" : "rank 2 returned before rank "));
            CHECK(contains(all[rank].text, rank == 0 ? "all_gather over world at " : "all_reduce over world at "));
            CHECK(contains(all[rank].text, "threads_overlap_test.cpp:"));
        }
        CHECK(all[2].kind == (throws ? Kind::planted : Kind::none));
    }
}

TEST_CASE("overlap: what a stream was told of a rank that returned is what others hear through its own rank") {
    const auto all = outcomes(3, on_threads, [](const Comm& world) {
        const Comm low = split(world, world.rank() == 2 ? 1 : 0, 0, "low");    // 0 1
        const Comm high = split(world, world.rank() == 0 ? 1 : 0, 0, "high");  // 1 2
        if (world.rank() == 2) { return; }
        if (world.rank() == 1) {
            barrier(high, world.reduction_stream());
            world.reduction_stream().synchronize();
        }
        barrier(low, {});
    });
    for (const std::size_t rank : {0U, 1U}) {
        CAPTURE(all[rank].text);
        CHECK(all[rank].kind == Kind::peer);
        CHECK(all[rank].rank == 2);
        CHECK(contains(all[rank].text, "rank 2 returned before rank 1's barrier over high"));
    }
}

TEST_CASE("overlap: a rank that throws with calls under way ends itself and its peers") {
    std::vector<std::vector<float>> values(3, std::vector<float>(3000, 1.0F));  // of calls that outlive a function
    for (int way = 0; way < 2; ++way) {
        const auto all = outcomes(3, on_threads, [&](const Comm& world) {
            const std::span<float> mine(values[world.rank()]);
            if (world.rank() == 1) {
                all_gather_in_place(world, mine.first(1500), world.communication_stream());
                all_reduce_in_place(world, ReduceOp::max, mine.subspan(1500), world.reduction_stream());
                world.reduction_stream().wait(world.communication_stream().record());
                throw Planted("planted");
            }
            // In the streams' threads or in their own they wait for what does not come.
            if (way == 0) { all_gather_in_place(world, mine.first(1500), world.communication_stream()); }
            barrier(world, {});
        });
        CHECK(all[1].kind == Kind::planted);
        for (const std::size_t rank : {0U, 2U}) {
            CAPTURE(all[rank].text);
            CHECK(all[rank].kind == Kind::peer);
            CHECK(contains(all[rank].text, "rank 1 failed: planted"));
        }
    }
}

/// Every rank must end with one message, that says what each of them waits for.
template <class F>
void check_deadlock(std::size_t ranks, const std::vector<std::string>& parts, F f) {
    for (const WaitMode waiting : {WaitMode::block, WaitMode::spin_briefly}) {
        for (const std::exception_ptr& error :
             launch_and_collect(ranks, f, {.waiting = waiting, .overlap = Overlap::threads})) {
            const Outcome seen = outcome(error);
            CAPTURE(seen.text);
            CHECK(seen.kind == Kind::peer);
            CHECK(contains(seen.text, ": deadlock: "));
            for (const std::string& part : parts) { CHECK(contains(seen.text, part)); }
            CHECK(contains(seen.text, "threads_overlap_test.cpp:"));
        }
    }
}

TEST_CASE("overlap: ranks whose streams have calls in different orders are told what each waits for") {
    check_deadlock(2,
                   {"rank 1 has not entered barrier at ", "(call 0 over a)", "rank 0 has not entered barrier at ",
                    "(call 0 over b)"},
                   [](const Comm& world) {
                       const Comm a = split(world, 0, 0, "a");
                       const Comm b = split(world, 0, 0, "b");
                       barrier(world.rank() == 0 ? a : b, world.communication_stream());
                       barrier(world.rank() == 0 ? b : a, world.communication_stream());
                       world.communication_stream().synchronize();
                   });
    check_deadlock(
        2, {"all have finished: all_gather of 4 fp32 at ", ", all_reduce sum of 8 fp32 at ", "(call 0 over world)"},
        [](const Comm& world) {
            std::vector<float> values(8);
            const std::span<float> all(values);
            const auto gather = [&] {
                all_gather_in_place(world, all, world.communication_stream());
                world.communication_stream().synchronize();
            };
            const auto reduce = [&] {
                all_reduce_in_place(world, ReduceOp::sum, all, world.reduction_stream());
                world.reduction_stream().synchronize();
            };
            if (world.rank() == 0) {
                gather();
                reduce();
            } else {
                reduce();
                gather();
            }
        });
}

TEST_CASE("overlap: a deadlock of ranks' own calls, of full rings and of streams that wait for each other is found") {
    check_deadlock(2, {"all have finished: barrier at ", "(call 0 over world)"}, [](const Comm& world) {
        if (world.rank() == 0) { barrier(world, {}); }
        barrier(world, world.reduction_stream());
        if (world.rank() == 1) { await(world.reduction_stream().record()); }
    });
    check_deadlock(2,
                   {"rank 1 has not entered barrier at ", "(call 1 over world)", "(call 3 over world)",
                    "rank 0 has not entered barrier at ", "(call 0 over a)"},
                   [](const Comm& world) {
                       const Comm a = split(world, 0, 0, "a");
                       if (world.rank() == 1) { barrier(a, {}); }
                       for (std::size_t i = 0; i < 2 * host::detail::CommandQueue::slots; ++i) {
                           barrier(world, world.communication_stream());
                           if (i == 1) { barrier(world, {}); }
                       }
                   });
    check_deadlock(1, {"rank 0 has not answered receive of 1 fp32 at ", "(over world)"}, [](const Comm& world) {
        float value = 0;
        receive(world, std::span<float>(&value, 1), 0, world.communication_stream());
        world.reduction_stream().wait(world.communication_stream().record());
        barrier(world, world.reduction_stream());
        world.reduction_stream().synchronize();
    });
    check_deadlock(1, {"rank 0 has not answered receive of 1 fp32 at "}, [](const Comm& world) {
        static float value = 0;
        for (std::size_t i = 0; i < 2 * host::detail::CommandQueue::slots; ++i) {
            receive(world, std::span<float>(&value, 1), 0, world.communication_stream());
        }
    });
}

TEST_CASE("overlap: a rank that computes while its streams and its peers wait is no deadlock") {
    LaunchOptions options = on_threads;
    options.deadlock_check = std::chrono::milliseconds(1);
    threads::launch(
        3,
        [](const Comm& world) {
            for (int i = 0; i < 20; ++i) {
                std::vector<float> values(60, 1.0F);
                const std::span<float> all(values);
                all_reduce_in_place(world, ReduceOp::sum, all.first(30), world.communication_stream());
                if (static_cast<std::size_t>(i) % 3 == world.rank()) {
                    std::this_thread::sleep_for(std::chrono::milliseconds(5));
                }
                all_gather_in_place(world, all.subspan(30), world.reduction_stream());
                world.reduction_stream().synchronize();
                world.communication_stream().synchronize();
            }
        },
        options);
}

TEST_CASE("overlap: a communicator may end before its calls have run, and its group is freed after them") {
    Flag given;
    std::vector<std::vector<float>> values(2, std::vector<float>(100, 1.0F));
    const auto all = outcomes(2, on_threads, [&](const Comm& world) {
        const std::span<float> mine(values[world.rank()]);
        for (int i = 0; i < 50; ++i) {
            const Comm pair = split(world, 0, 0, "pair");
            all_reduce_in_place(pair, ReduceOp::max, mine, world.communication_stream());
        }
        {
            const Comm pair = split(world, 0, 0, "pair");
            if (world.rank() == 1) { given.await(); }
            all_reduce_in_place(pair, ReduceOp::sum, mine, world.communication_stream());
        }
        given.set();
        split(world, 0, 0, "another");
        world.communication_stream().synchronize();
        expect(mine[99] == 2, "the sum of both");
    });
    for (const Outcome& each : all) {
        CAPTURE(each.text);
        CHECK(each.kind == Kind::none);
    }
}

}  // namespace threads_overlap_test
