// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/recorder/record_files.hpp>
#include <shardkit/verbs/split.hpp>

#include "../verb_suite.hpp"
#include "gpu_ranks.hpp"
#include "temporary_folder.hpp"
#include "test_size.hpp"
#include "unit/thrown_message.hpp"

namespace verbs_test {

namespace {

using namespace shardkit;

/// An element type of the program's own.
struct OwnBf16 {
    bf16 value;
    OwnBf16() = default;
    explicit OwnBf16(float number) : value(number) {}
    explicit operator float() const { return static_cast<float>(value); }
};

}  // namespace

}  // namespace verbs_test

template <>
struct shardkit::element_traits<verbs_test::OwnBf16> : shardkit::element_traits<shardkit::bf16> {};

namespace verbs_test {

namespace {

using namespace shardkit;
using namespace verb_suite;
using gpu_ranks::Comm;

template <class F>
void on_world(std::size_t ranks, standin::Pace pace, const nccl::Options& options, const F& f) {
    CAPTURE(ranks);
    gpu_ranks::restart(pace);
    const auto outcomes =
        gpu_ranks::with_world(ranks, gpu_ranks::patient(options), [&](const Comm& comm, nccl::World&) { f(comm); });
    CHECK(gpu_ranks::first_error(outcomes) == "");
    CHECK(standin::order_violations().empty());
    CHECK(standin::frees_in_use().empty());
    CHECK(standin::live() == standin::Live{});
}

/// f on 1 to 5 ranks with work that runs as late as it may, and on 3 with work that runs early; afterwards nothing is
/// left.
template <class F>
void on_every_world(const nccl::Options& options, const F& f) {
    for (std::size_t ranks = 1; ranks <= 5; ranks += test_size::reduced() ? 3U : 1U) {
        on_world(ranks, standin::Pace::lazy, options, f);
    }
    on_world(3, standin::Pace::eager, options, f);
}

nccl::Options little_staging() {
    nccl::Options options = gpu_ranks::patient();
    options.staging_bytes = 1;  // the least that there is: pieces of 1 KiB per rank
    return options;
}

}  // namespace

// Of a type NCCL adds, one that is widened, and one of odd addresses.
TEST_CASE_TEMPLATE("nccl: every verb and size gives the serial result bit for bit", T, float, bf16, std::uint8_t) {
    on_every_world({}, [](const Comm& world) { every_verb<T>(world); });
}

TEST_CASE("nccl: reductions of every other element type give the serial result bit for bit") {
    on_every_world({}, [](const Comm& world) {
        reductions<double, double>(world);
        reductions<fp16, fp16>(world);
        reductions<std::int64_t, std::int64_t>(world);
        reductions<std::int32_t, std::int32_t>(world);
    });
}

TEST_CASE("nccl: unsigned words reduce modulo their size") {
    on_every_world({}, [](const Comm& world) { unsigned_words(world); });
}

TEST_CASE("nccl: reductions into another type add in that type's arithmetic and round once") {
    on_every_world({}, [](const Comm& world) {
        reductions_into_another_type(world);
        sixteen_bit_sums_are_rounded_once(world);
    });
}

TEST_CASE("nccl: elements of a type of the program's own are added, and others are refused") {
    on_every_world({}, [](const Comm& world) {
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
            Values<OwnBf16, Comm> own(world, 100, 0);
            Values<bf16, Comm> same(world, 100, 0);
            Values<float, Comm> wide(world, 100, 0);
            Values<float, Comm> expected(world, 100, 0);
            for (std::size_t i = 0; i < 100; ++i) {
                own[i] = OwnBf16(static_cast<float>(17 * world.rank() + i));
                same[i] = own[i].value;
            }
            const auto stream = Bench<Comm>::stream(world);
            all_reduce(world, op, own.view(), wide.span(), stream);
            all_reduce(world, op, same.view(), expected.span(), stream);
            for (std::size_t i = 0; i < 100; ++i) {
                rank_checks::expect(wide[i] == expected[i] && wide[i] >= static_cast<float>(i), "the sum");
            }
        }
        const auto words = world.buffer<std::uint32_t>(4);
        const auto sums = world.buffer<std::uint64_t>(4);
        const std::string told = thrown_message<std::invalid_argument>(
            [&] { all_reduce(world, ReduceOp::sum, std::span<const std::uint32_t>(words.span()), sums.span()); });
        rank_checks::expect(told.find("all_reduce: uint32 into uint64, expected one type") != std::string::npos,
                            told);
    });
}

TEST_CASE("nccl: sums and maxima in pieces of little staging memory are the same") {
    for (const standin::Pace pace : gpu_ranks::paces) {
        gpu_ranks::restart(pace);
        const auto outcomes = gpu_ranks::with_world(3, little_staging(), [](const Comm& world, nccl::World&) {
            for (const std::size_t k : {std::size_t{255}, std::size_t{256}, std::size_t{257}, std::size_t{3001}}) {
                check_reduce_scatter<bf16, bf16>(world, k, 1);
                check_reduce_scatter<bf16, float>(world, k, 1);
                check_reduce_scatter<float, bf16>(world, k, 1);
                check_all_reduce<fp16, fp16>(world, 3 * k, 1);
                check_all_reduce<fp16, double>(world, 3 * k, 1);
                check_all_reduce<float, float>(world, 3 * k, 1);
            }
        });
        CHECK(gpu_ranks::first_error(outcomes) == "");
    }
}

TEST_CASE("nccl: a NaN of any rank survives every reduction") {
    on_every_world({}, [](const Comm& world) { a_nan_survives_every_reduction(world); });
}

TEST_CASE("nccl: sizes that do not fit are refused before anything is communicated") {
    gpu_ranks::restart();
    const auto outcomes = gpu_ranks::with_world(
        2, gpu_ranks::patient(), [](const Comm& world, nccl::World&) { sizes_that_do_not_fit_are_refused(world); });
    CHECK(gpu_ranks::first_error(outcomes) == "");
}

TEST_CASE("nccl: splits order their members, nest and run at once") {
    for (const standin::Pace pace : gpu_ranks::paces) {
        for (std::size_t ranks = 1; ranks <= 5; ++ranks) {
            CAPTURE(ranks);
            gpu_ranks::restart(pace);
            const auto outcomes =
                gpu_ranks::with_world(ranks, gpu_ranks::patient(), [](const Comm& world, nccl::World&) {
                    for (std::uint64_t colouring = 0; colouring < 8; ++colouring) {
                        split_orders_members(world, verb_oracle::mixed(colouring));
                    }
                    splits_run_at_once(world, 2);
                    const Comm far =
                        split(world, (std::size_t{1} << 62U) + world.rank() % 2, std::size_t{1} << 40U, "far");
                    expect(far.size() == (world.size() + 1 - world.rank() % 2) / 2, "large colors are told apart");
                    try {
                        split(world, std::size_t{1} << 63U, 0, "x");
                        expect(false, "a color of 2^63 is refused");
                    } catch (const std::invalid_argument&) {}
                });
            CHECK(gpu_ranks::first_error(outcomes) == "");
            CHECK(standin::order_violations().empty());
            CHECK(standin::live() == standin::Live{});
        }
    }
}

TEST_CASE("nccl: messages that could only wait for ever are errors") {
    gpu_ranks::restart();
    const auto outcomes = gpu_ranks::with_world(2, gpu_ranks::patient(), [](const Comm& world, nccl::World&) {
        const auto stream = verb_values::Bench<Comm>::stream(world);
        Values<float, Comm> values(world, 3, 0);
        const auto fails = [&](auto call) {
            try {
                call();
            } catch (const CommError&) { return true; }
            return false;
        };
        const std::size_t self = world.rank();
        expect(fails([&] { send(world, values.view(), self, stream); }), "send to itself");
        expect(fails([&] { receive(world, values.span(), self, stream); }), "receive from itself");
        expect(fails([&] { send_receive(world, values.view(), self, values.span().first(2), self, stream); }),
               "sizes of a message to itself");
        expect(fails([&] { send_receive(world, values.view(), self, values.span(), 1 - self, stream); }),
               "a message to itself that is not received");
        check_copies<float>(world, 7, 1);  // the World is as good as before
    });
    CHECK(gpu_ranks::first_error(outcomes) == "");
}

TEST_CASE("nccl: memory of the host or of another GPU is refused by name") {
    gpu_ranks::restart();
    std::array<float*, 2> memory{};
    for (int device = 1; device >= 0; --device) {
        gpu::detail::check(cudaSetDevice(device), "cudaSetDevice");
        gpu::detail::check(cudaMalloc(reinterpret_cast<void**>(&memory[static_cast<std::size_t>(device)]), 16),
                           "cudaMalloc");
    }
    const auto outcomes = gpu_ranks::with_world(2, gpu_ranks::patient(), [&](const Comm& world, nccl::World&) {
        const auto stream = verb_values::Bench<Comm>::stream(world);
        std::vector<float> host(4);
        std::string text;
        try {
            all_reduce_in_place(world, ReduceOp::sum, std::span<float>(host), stream);
        } catch (const std::invalid_argument& error) { text = error.what(); }
        expect(rank_checks::contains(text, "all_reduce: input: host memory given"), text);
        try {
            world.require_memory(host.data(), 16, "Weight");
        } catch (const std::invalid_argument& error) { text = error.what(); }
        expect(rank_checks::contains(text, "Weight: host memory given"), text);

        text.clear();
        try {
            all_reduce_in_place(world, ReduceOp::sum, std::span<float>(memory[1 - world.rank()], 4), stream);
        } catch (const std::invalid_argument& error) { text = error.what(); }
        expect(rank_checks::contains(text, "all_reduce: input: device memory of GPU " +
                                               std::to_string(1 - world.rank()) + " given, device memory of GPU " +
                                               std::to_string(world.rank()) + " expected"),
               text);
        check_all_reduce<float, float>(world, 7, 1);
    });
    for (float* const each : memory) { gpu::detail::check(cudaFree(each), "cudaFree"); }
    CHECK(gpu_ranks::first_error(outcomes) == "");
}

TEST_CASE("nccl: verbs on two streams run in the order in which they are given") {
    for (const standin::Pace pace : gpu_ranks::paces) {
        gpu_ranks::restart(pace);
        const auto outcomes = gpu_ranks::with_world(3, gpu_ranks::patient(), [](const Comm& world, nccl::World&) {
            const auto streams = world.streams();
            Values<float, Comm> values = verb_values::input<float>(world, world.rank(), 100, 1);
            const Comm reversed = split(world, 0, world.size() - 1 - world.rank(), "reversed");
            values.span();
            streams.compute.wait(streams.communication.record());  // for the values, not for the verbs
            all_reduce_in_place(world, ReduceOp::sum, values.span(), streams.communication);
            all_reduce_in_place(reversed, ReduceOp::sum, values.span(), streams.compute);
            all_reduce_in_place(world, ReduceOp::sum, values.span(), streams.communication);
            const auto tripled = [](float x) { return (x + x) + x; };
            for (std::size_t i = 0; i < 100; ++i) {
                const float sum =
                    reduced<float, float>(ReduceOp::sum, world.size(), i, verb_values::Bench<Comm>::all_reduce_order);
                expect(same_bits(values[i], tripled(tripled(sum))), "element ", i);
            }
        });
        CHECK(gpu_ranks::first_error(outcomes) == "");
        CHECK(standin::order_violations().empty());
    }
}

TEST_CASE("nccl: a World's GPU need not be the one that its thread has selected") {
    gpu_ranks::restart();
    const nccl::UniqueId id = nccl::UniqueId::create();
    const auto outcomes = gpu_ranks::each_in_a_thread(2, [&](std::size_t rank) {
        nccl::Options options = gpu_ranks::patient();
        options.device = static_cast<int>(rank) + 3;
        nccl::World world(id, 2, rank, options);
        int selected = -1;
        expect(cudaGetDevice(&selected) == cudaSuccess && selected == static_cast<int>(rank), "the selection stays");
        every_verb<bf16>(Comm(world));
        world.finish();
    });
    CHECK(gpu_ranks::first_error(outcomes) == "");
    CHECK(standin::live() == standin::Live{});
}

TEST_CASE(
    "nccl: ranks on other GPUs make no context on GPU 0, and the World's stays selected in a thread with none") {
    gpu_ranks::restart();
    const temporary_folder::Folder folder;
    const nccl::UniqueId id = nccl::UniqueId::create();
    std::vector<std::thread> threads;
    std::array<int, 2> selected{};
    std::array<std::optional<nccl::World>, 2> worlds;
    for (std::size_t rank = 0; rank < 2; ++rank) {
        threads.emplace_back([&, rank] {
            nccl::Options options = gpu_ranks::patient();
            options.device = static_cast<int>(rank) + 3;
            options.record = folder.file("run");
            const Comm comm(worlds[rank].emplace(id, 2, rank, options));
            every_verb<bf16>(comm);
            CHECK(cudaGetDevice(&selected[rank]) == cudaSuccess);
        });
    }
    for (std::thread& thread : threads) { thread.join(); }
    recorder::request_records();  // of the threads that write them
    for (const std::size_t rank : {0U, 1U}) {
        while (!std::filesystem::exists(recorder::record_file(folder.file("run"), rank))) {
            std::this_thread::yield();
        }
    }
    CHECK(standin::context_maker(0) == "");
    for (auto& world : worlds) {
        std::thread([&] { world.reset(); }).join();
    }  // aborts, in threads of its own, to which the system may give the ids of those that have ended
    CHECK(selected == std::array{3, 4});
    CHECK_FALSE(standin::context_maker(3).empty());
    CHECK(standin::context_maker(0) == "");
    CHECK(standin::live().communicators == 0);
    CHECK(standin::hangs() == 0);
}

TEST_CASE("nccl: verbs are captured in a CUDA graph and run at every launch") {
    for (const standin::Pace pace : gpu_ranks::paces) {
        gpu_ranks::restart(pace);
        const auto outcomes = gpu_ranks::with_world(2, little_staging(), [](const Comm& world, nccl::World&) {
            constexpr std::size_t count = 2000;  // in pieces, on two streams
            const auto stream = verb_values::Bench<Comm>::stream(world);
            Values<bf16, Comm> values = verb_values::input<bf16>(world, world.rank(), count, 1);
            Values<bf16, Comm> sums(world, count, 2);
            const std::span<const bf16> in = values.view();
            const std::span<bf16> out = sums.span();
            const std::uint64_t calls_before = world.traffic().total(Verb::all_reduce).calls;
            cudaGraph_t graph = nullptr;
            cudaGraphExec_t launchable = nullptr;
            gpu::detail::check(cudaStreamBeginCapture(stream.native(), cudaStreamCaptureModeThreadLocal), "begin");
            all_reduce(world, ReduceOp::sum, in, out, stream);
            gpu::detail::check(cudaStreamEndCapture(stream.native(), &graph), "end");
            gpu::detail::check(cudaGraphInstantiate(&launchable, graph, 0), "instantiate");
            expect(world.traffic().total(Verb::all_reduce).calls == calls_before + 1, "counted when it is given");
            for (std::size_t launch = 0; launch < 3; ++launch) {
                for (std::size_t i = 0; i < count; ++i) { values[i] = value<bf16>(world.rank() + 2 * launch, i); }
                values.span();
                gpu::detail::check(cudaGraphLaunch(launchable, stream.native()), "launch");
                for (std::size_t i = 0; i < count; ++i) {
                    const auto of = [&](std::size_t q) { return static_cast<float>(value<bf16>(q + 2 * launch, i)); };
                    expect(same_bits(sums[i], bf16(of(0) + of(1))), "launch ", launch, ", element ", i);
                }
                sums.span();  // looked at in the engine's memory again after the next launch
            }
            gpu::detail::check(cudaGraphExecDestroy(launchable), "destroy");
            gpu::detail::check(cudaGraphDestroy(graph), "destroy");
        });
        CHECK(gpu_ranks::first_error(outcomes) == "");
        CHECK(standin::live() == standin::Live{});
    }
}

TEST_CASE("nccl: the log counts what ranks move, against closed forms, and waits for nothing") {
    gpu_ranks::restart();
    constexpr std::uint64_t n = 4;
    const auto outcomes = gpu_ranks::with_world(n, gpu_ranks::patient(), [](const Comm& world, nccl::World&) {
        const auto stream = verb_values::Bench<Comm>::stream(world);
        Values<float, Comm> shard(world, 2500, 0);
        Values<float, Comm> full(world, 2500 * n, 0);
        Values<bf16, Comm> half(world, 6400 * n, 0);
        Values<float, Comm> wide(world, 6400 * n, 0);
        wide.span();
        stream.synchronize();
        world.traffic().clear();
        standin::hold(stream.native());
        all_gather(world, shard.view(), full.span(), stream);
        reduce_scatter(world, ReduceOp::sum, full.view(), shard.span(), stream);
        all_reduce(world, ReduceOp::sum, half.view(), wide.span(), stream);
        all_reduce_in_place(world, ReduceOp::max, full.span().first(10), stream);
        broadcast(world, full.span(), 0, stream);
        all_to_all(world, full.view(), wide.span().first(2500 * n), stream);
        send_receive(world, shard.view(), (world.rank() + 1) % n, shard.span(), (world.rank() + n - 1) % n, stream);
        barrier(world, stream);
        const auto moved = [&](Verb verb) { return world.traffic().total(verb).moved.value; };
        const auto counts = [&](Verb verb, std::uint64_t bytes) {
            expect(moved(verb) == bytes, name(verb), ": ", bytes, ", got ", moved(verb));
        };
        counts(Verb::all_gather, (n - 1) * 2500 * 4);
        counts(Verb::reduce_scatter, (n - 1) * 2500 * 4);
        counts(Verb::all_reduce, 2 * (n - 1) * 6400 * 4 + (n - 1) * 10 * 4);
        counts(Verb::broadcast, world.rank() == 0 ? 0 : n * 2500 * 4);
        counts(Verb::all_to_all, (n - 1) * 2500 * 4);
        counts(Verb::send, 2500 * 4);
        counts(Verb::receive, 2500 * 4);
        expect(world.traffic().total(Verb::barrier).calls == 1, "one barrier");
        standin::release(stream.native());
        // Each rank sends its own number of elements to all.
        std::array<std::size_t, n> sends{};
        sends.fill(world.rank());
        const std::array<std::size_t, n> receives{0, 1, 2, 3};
        all_to_all_uneven(world, full.view().first(n * world.rank()), sends, wide.span().first(6), receives, stream);
        counts(Verb::all_to_all_uneven, (6 - world.rank()) * 4);
    });
    CHECK(gpu_ranks::first_error(outcomes) == "");
}

}  // namespace verbs_test
