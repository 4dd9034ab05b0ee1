// SPDX-License-Identifier: Apache-2.0
// What NCCL and CUDA are told of a World's communicators and streams.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/nccl/native.hpp>
#include <shardkit/verbs/all_gather.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verbs/barrier.hpp>
#include <shardkit/verbs/broadcast.hpp>
#include <shardkit/verbs/reduce_scatter.hpp>
#include <shardkit/verbs/split.hpp>

#include "../../thrown_message.hpp"
#include "../verb_suite.hpp"
#include "gpu_ranks.hpp"

namespace options_test {

namespace {

using namespace shardkit;
using gpu_ranks::Comm;
using rank_checks::contains;

}  // namespace

TEST_CASE("nccl: every communicator is made with what the options say, and does not block") {
    for (const CompareCalls compares : {CompareCalls::off, CompareCalls::each_step}) {
        gpu_ranks::restart();
        nccl::Options options = gpu_ranks::patient();
        options.max_ctas = 8;
        options.name = "trainer";
        options.split_share = true;
        options.compare_calls = compares;
        std::vector<ncclConfig_t> configurations;
        const auto outcomes = gpu_ranks::with_world(2, options, [&](const Comm& comm, nccl::World& world) {
            const Comm child = split(comm, 0, comm.rank(), "child");
            if (comm.rank() == 1) { return; }
            for (const ncclComm_t each : {nccl::native(comm), nccl::native(child)}) {
                configurations.push_back(standin::configuration(each));
            }
            if (world.state().world_group().comparison != nullptr) {
                configurations.push_back(standin::configuration(world.state().world_group().comparison->comm));
            }
        });
        CHECK(gpu_ranks::first_error(outcomes) == "");
        CHECK(configurations.size() == (compares == CompareCalls::off ? 2 : 3));
        for (const ncclConfig_t& each : configurations) {
            CHECK(each.blocking == 0);
            CHECK(each.minCTAs == NCCL_CONFIG_UNDEF_INT);
            CHECK(each.maxCTAs == 8);
            CHECK(std::string(each.commName) == "trainer");
            CHECK(each.splitShare == 1);
        }
    }
}

TEST_CASE("nccl: what the options do not say is NCCL's; sharing is not for survivors") {
    gpu_ranks::restart();
    nccl::Options options = gpu_ranks::patient();
    {
        const nccl::World world(nccl::UniqueId::create(), 1, 0, options);
        const ncclConfig_t configuration = standin::configuration(world.state().world_group().comm);
        CHECK(configuration.minCTAs == NCCL_CONFIG_UNDEF_INT);
        CHECK(configuration.maxCTAs == NCCL_CONFIG_UNDEF_INT);
        CHECK(configuration.nvlsCTAs == NCCL_CONFIG_UNDEF_INT);
        CHECK(configuration.commName == nullptr);
        CHECK(configuration.splitShare == 0);
    }
    options.split_share = true;
    options.survivable = true;
    CHECK(contains(thrown_message<std::invalid_argument>(
                       [&] { const nccl::World world(nccl::UniqueId::create(), 1, 0, options); }),
                   "split_share with survivable"));
}

TEST_CASE("nccl: an environment that makes NCCL block is refused before anything waits, any other is not") {
    constexpr const char* variable = "NCCL_COMM_BLOCKING";
    gpu_ranks::restart();
    const auto made = [] { const nccl::World world(nccl::UniqueId::create(), 1, 0, gpu_ranks::patient()); };
    setenv(variable, "1", 1);
    CHECK(contains(thrown_message<std::invalid_argument>(made),
                   "NCCL_COMM_BLOCKING is 1, with which NCCL's calls wait for peers without a deadline"));
    setenv(variable, "0", 1);
    CHECK_NOTHROW(made());
    unsetenv(variable);
    CHECK(standin::live() == standin::Live{});
}

TEST_CASE("nccl: two communicators at once fit on the GPU, or NCCL orders their launches, or the World is refused") {
    constexpr const char* variable = "NCCL_LAUNCH_ORDER_IMPLICIT";
    struct Case {
        int version;
        const char* said;  // by the user; null: nothing
        int units;
        int max_ctas;
        int taken;  // 0: refused
    };
    for (const Case& each :
         {Case{21800, nullptr, 132, 0, 32}, Case{21800, nullptr, 108, 0, 26}, Case{21800, nullptr, 14, 0, 3},
          Case{21800, nullptr, 1, 0, 0}, Case{21800, nullptr, 108, 54, 0}, Case{22501, "1", 108, 54, 0},
          Case{22809, nullptr, 108, 64, 64}, Case{22809, "0", 108, 64, 0}, Case{22809, "0", 132, 0, 32},
          Case{22809, "1", 1, 0, 1}}) {
        CAPTURE(each.version);
        CAPTURE(each.units);
        CAPTURE(each.max_ctas);
        unsetenv(variable);
        if (each.said != nullptr) { setenv(variable, each.said, 1); }
        gpu_ranks::restart(standin::Pace::eager);
        standin::set_nccl_version(each.version);
        standin::set_multiprocessors(each.units);
        nccl::Options options = gpu_ranks::patient();
        options.max_ctas = each.max_ctas;
        if (each.taken == 0) { options.timeout = gpu_ranks::short_timeout; }
        int taken = 0;
        const auto outcomes = gpu_ranks::with_world(2, options, [&](const Comm& comm, nccl::World& world) {
            const auto streams = world.streams();
            comm.separate_reductions();
            auto values = world.communicator().buffer<float>(100);
            if (comm.rank() == 0) { taken = standin::configuration(nccl::native(comm)).maxCTAs; }
            all_gather_in_place(comm, values.span(), streams.communication);
            all_reduce_in_place(comm, ReduceOp::sum, values.span(), streams.reduction);
        });
        CHECK(taken == each.taken);
        CHECK(standin::crowded().empty());
        if (each.taken == 0) {
            CHECK(contains(outcomes[0].text, "max_ctas is "));
            CHECK(contains(outcomes[0].text, "of each of two communicators that run at once, but GPU 0 has "));
        } else {
            CHECK(gpu_ranks::first_error(outcomes) == "");
        }
        CHECK(std::string(std::getenv(variable)) == (each.said != nullptr ? each.said : "1"));
    }
    unsetenv(variable);
}

TEST_CASE("nccl: policies of CTAs and graphs are NCCL's, where it knows them") {
    gpu_ranks::restart();
    nccl::Options options = gpu_ranks::patient();
    options.cta_policy = nccl::CtaPolicy::zero;
    options.registration = nccl::Registration::windows;
    {
        const nccl::World world(nccl::UniqueId::create(), 1, 0, options);
        const ncclConfig_t configuration = standin::configuration(world.state().world_group().comm);
        CHECK(configuration.CTAPolicy == NCCL_CTA_POLICY_ZERO);
    }
    const auto refused = [&] {
        return thrown_message<CommError>([&] { const nccl::World world(nccl::UniqueId::create(), 1, 0, options); });
    };
    standin::set_nccl_version(22703);
    CHECK(contains(refused(), "CtaPolicy::zero"));
    options.registration = nccl::Registration::none;
    options.cta_policy = nccl::CtaPolicy::efficiency;
    standin::set_nccl_version(22605);
    CHECK(contains(refused(), "cta_policy"));
    options.cta_policy = nccl::CtaPolicy::by_default;
    options.graph_usage = nccl::GraphUsage::one;
    CHECK(contains(refused(), "graph_usage"));
}

TEST_CASE("nccl: gathers by copy engines without windows are refused, because NCCL would silently take kernels") {
    gpu_ranks::restart();
    nccl::Options options = gpu_ranks::patient();
    options.cta_policy = nccl::CtaPolicy::zero;
    const auto refused = [&] {
        return thrown_message<std::invalid_argument>(
            [&] { const nccl::World world(nccl::UniqueId::create(), 1, 0, options); });
    };
    const std::string why = ", but NCCL gathers by copy engines only into windows; expected Registration::windows";
    CHECK(contains(refused(), "nccl::Options: CtaPolicy::zero with Registration::none" + why));
    options.registration = nccl::Registration::buffers;
    CHECK(contains(refused(), "nccl::Options: CtaPolicy::zero with Registration::buffers" + why));
}

TEST_CASE("nccl: 16-bit sums by NCCL need windows and NCCL 2.31.2, and are refused without either") {
    gpu_ranks::restart();
    nccl::Options options = gpu_ranks::patient();
    options.sums = nccl::Sums::by_nccl;
    const auto make = [&] { const nccl::World world(nccl::UniqueId::create(), 1, 0, options); };
    const std::string refused = thrown_message<CommError>(make);
    CHECK(contains(refused, "Sums::by_nccl"));
    CHECK(contains(refused, "NCCL 2.28.9 is loaded, expected 2.31.2 or later"));
    standin::set_nccl_version(23102);
    CHECK(contains(thrown_message<std::invalid_argument>(make),
                   "nccl::Options: Sums::by_nccl with Registration::none, but NCCL adds 16-bit elements in fp32 only "
                   "out of windows; expected Registration::windows"));
    options.registration = nccl::Registration::windows;
    make();
    CHECK(standin::live() == standin::Live{});
}

TEST_CASE("nccl: each collective says what the options ask for, and nothing where they ask for nothing") {
    for (const bool asks : {true, false}) {
        gpu_ranks::restart();
        standin::set_nccl_version(nccl::configured_calls_version);
        nccl::Options options = gpu_ranks::patient();
        options.registration = nccl::Registration::windows;
        options.cta_policy = nccl::CtaPolicy::efficiency;
        options.max_ctas = 2;
        if (asks) { options.each_call = {.one_cta_up_to = 4096, .copy_engine_gathers = true, .numbered = true}; }
        std::vector<recorder::RecentCall> recorded;
        std::array<int, 2> right{};
        const auto outcomes = gpu_ranks::with_world(2, options, [&](const Comm& comm, nccl::World& world) {
            const shardkit::gpu::TimelineRef stream(world.streams().communication);
            for (const std::size_t count : {std::size_t{1024}, std::size_t{1026}}) {
                auto values = world.communicator().buffer<float>(count);
                all_gather_in_place(comm, values.span(), stream);
                all_reduce_in_place(comm, ReduceOp::sum, values.span(), stream);
                reduce_scatter_in_place(comm, ReduceOp::sum, values.span(), stream);
                broadcast(comm, values.span(), 0, stream);
            }
            barrier(comm, stream);
            stream.synchronize();
            verb_checks::check_copies<float>(comm, 10, 1);
            ++right[comm.rank()];
            if (comm.rank() == 0) { recorded = comm.label().journal.recorder().recent_calls(); }
        });
        CHECK(gpu_ranks::first_error(outcomes) == "");
        CHECK(right == std::array{1, 1});
        CHECK(standin::uneven_windows().empty());
        const auto said = standin::said_of_calls();
        if (!asks) {
            CHECK(said.empty());
            CHECK(standin::calls("gathers by copy engines") == 0);
            continue;
        }
        std::map<std::string, std::size_t> calls;
        for (const standin::SaidOfCall& each : said) {
            const bool gathers = each.name == "ncclAllGather";
            const bool parts = gathers || each.name == "ncclReduceScatter";
            const std::size_t bytes = each.count * (each.count == 1 ? 4 : parts ? 8 : 4);
            CAPTURE(each.name);
            CAPTURE(bytes);
            CHECK(each.config.maxCTAs == (bytes <= 4096 ? 1 : NCCL_CONFIG_UNDEF_INT));
            CHECK(each.config.minCTAs == each.config.maxCTAs);
            CHECK(each.config.CTAPolicy == (gathers ? NCCL_CTA_POLICY_ZERO : NCCL_CONFIG_UNDEF_INT));
            CHECK(each.config.launchCompletionEvent == nullptr);
            const auto found = std::ranges::find_if(
                recorded, [&](const auto& call) { return call.number == each.config.userProfilerTag; });
            REQUIRE(found != recorded.end());
            const std::map<Verb, std::string> names{{Verb::all_gather, "ncclAllGather"},
                                                    {Verb::all_reduce, "ncclAllReduce"},
                                                    {Verb::barrier, "ncclAllReduce"},
                                                    {Verb::broadcast, "ncclBroadcast"},
                                                    {Verb::reduce_scatter, "ncclReduceScatter"}};
            CHECK(names.at(found->signature.verb) == each.name);
            ++calls[each.name];
        }
        CHECK(calls.size() == 4);
        CHECK(calls["ncclReduceScatter"] == 4);
        CHECK(standin::calls("gathers by copy engines") == calls["ncclAllGather"]);
    }
}

TEST_CASE("nccl: a gather ahead keeps out later work of the compute stream until it has started, and no longer") {
    for (const bool asks : {true, false}) {
        gpu_ranks::restart();
        standin::set_nccl_version(nccl::launch_event_version);
        nccl::Options options = gpu_ranks::patient();
        options.each_call.resident_gathers = asks;
        std::atomic<bool> checked = false;
        const auto outcomes = gpu_ranks::with_world(2, options, [&](const Comm& comm, nccl::World& world) {
            const auto streams = world.streams();
            auto values = world.communicator().buffer<float>(64);
            auto later = world.communicator().buffer<float>(1);
            streams.compute.synchronize();
            if (comm.rank() == 1) { checked.wait(false); }
            if (comm.rank() == 0) { standin::hold(streams.communication.native()); }
            all_gather_in_place(comm, values.span(), streams.communication);
            if (comm.rank() == 0) {
                gpu::detail::check(cudaMemsetAsync(later.data(), 0, sizeof(float), streams.compute.native()),
                                   "cudaMemsetAsync");
                const auto ready = [&] { return cudaStreamQuery(streams.compute.native()) == cudaSuccess; };
                const bool runs_before = ready();
                standin::release(streams.communication.native());
                const bool runs_then = ready();
                const bool is_over = cudaStreamQuery(streams.communication.native()) == cudaSuccess;
                checked = true;
                checked.notify_all();
                rank_checks::expect(runs_before != asks, "the compute stream before the gather has started");
                rank_checks::expect(runs_then, "the compute stream when it has started");
                rank_checks::expect(!is_over, "the gather, whose peer has not come");
            }
            streams.communication.synchronize();
        });
        CHECK(gpu_ranks::first_error(outcomes) == "");
        CHECK(standin::live() == standin::Live{});
    }
}

TEST_CASE("nccl: the order of captures is what the options say, where NCCL knows it") {
    gpu_ranks::restart();
    standin::set_nccl_version(nccl::graph_ordering_version);
    const auto configuration = [](const nccl::Options& options) {
        const nccl::World world(nccl::UniqueId::create(), 1, 0, options);
        return standin::configuration(world.state().world_group().comm);
    };
    nccl::Options options = gpu_ranks::patient();
    CHECK(configuration(options).graphStreamOrdering == NCCL_CONFIG_UNDEF_INT);
    options.graph_usage = nccl::GraphUsage::one;
    options.graph_stream_ordering = false;
    CHECK(configuration(options).graphStreamOrdering == 0);
}

TEST_CASE("nccl: what an older NCCL does not know of calls and captures is refused, and what contradicts itself") {
    gpu_ranks::restart();
    struct Case {
        int version;
        const char* text;
        void (*set)(nccl::Options&);
    };
    const Case refused[] = {
        {22809, "each_call", [](nccl::Options& o) { o.each_call.numbered = true; }},
        {22809, "each_call", [](nccl::Options& o) { o.each_call.one_cta_up_to = 1; }},
        {23102, "each_call.resident_gathers", [](nccl::Options& o) { o.each_call.resident_gathers = true; }},
        {22907, "graph_stream_ordering",
         [](nccl::Options& o) {
             o.graph_usage = nccl::GraphUsage::one;
             o.graph_stream_ordering = false;
         }},
        {23203,
         "graph_stream_ordering off, but NCCL then takes verbs in one graph at a time alone; expected "
         "GraphUsage::one",
         [](nccl::Options& o) { o.graph_stream_ordering = false; }},
        {23203,
         "each_call.copy_engine_gathers with Registration::none, but NCCL gathers by copy engines only into windows",
         [](nccl::Options& o) { o.each_call.copy_engine_gathers = true; }},
        {23203, "each_call.resident_gathers with gathers by copy engines, which have no kernel",
         [](nccl::Options& o) {
             o.registration = nccl::Registration::windows;
             o.cta_policy = nccl::CtaPolicy::zero;
             o.each_call.resident_gathers = true;
         }},
    };
    for (const Case& each : refused) {
        CAPTURE(each.text);
        standin::set_nccl_version(each.version);
        nccl::Options options = gpu_ranks::patient();
        each.set(options);
        std::string text;
        try {
            const nccl::World world(nccl::UniqueId::create(), 1, 0, options);
        } catch (const std::exception& error) { text = error.what(); }
        CHECK(contains(text, each.text));
    }
}

TEST_CASE("nccl: the World's communication stream comes before its compute stream; the user's stay as they are") {
    gpu_ranks::restart();
    const auto priority_of = [](const shardkit::Stream& stream) {
        int priority = 1;
        CHECK(cudaStreamGetPriority(stream.native(), &priority) == cudaSuccess);
        return priority;
    };
    int usual = 1;
    int greatest = 1;
    CHECK(cudaDeviceGetStreamPriorityRange(&usual, &greatest) == cudaSuccess);
    nccl::World world(nccl::UniqueId::create(), 1, 0, gpu_ranks::patient());
    CHECK(priority_of(world.streams().compute) == usual);
    CHECK(priority_of(world.streams().communication) == greatest);
    const gpu::Stream own;
    nccl::Options options = gpu_ranks::patient();
    options.communication = own.ref().native();
    nccl::World with_own(nccl::UniqueId::create(), 1, 0, options);
    CHECK(priority_of(with_own.streams().communication) == usual);
}

TEST_CASE("nccl: a group of one rank has all verbs and no communicator of NCCL's") {
    for (const standin::Pace pace : gpu_ranks::paces) {
        gpu_ranks::restart(pace);
        const auto outcomes = gpu_ranks::with_world(3, gpu_ranks::patient(), [](const Comm& world, nccl::World&) {
            const Comm alone = split(world, world.rank(), 0, "alone");
            const Comm again = split(alone, 7, 0, "again");
            const Comm uneven = split(world, world.rank() == 2 ? 1 : 0, world.rank(), "uneven");
            rank_checks::expect(nccl::native(alone) == nullptr && nccl::native(again) == nullptr, "no communicator");
            rank_checks::expect((nccl::native(uneven) == nullptr) == (world.rank() == 2), "one for the two");
            rank_checks::expect(uneven.size() == (world.rank() == 2 ? 1 : 2), "sizes");
            for (const Comm& each : {alone, again, uneven}) {
                verb_checks::check_copies<float>(each, 10, 1);
                verb_checks::check_all_reduce<bf16, float>(each, 100, 1);
                verb_checks::check_reduce_scatter<float, float>(each, 100, 2);
            }
        });
        CHECK(gpu_ranks::first_error(outcomes) == "");
        CHECK(standin::calls("ncclCommSplit") == 3);  // "uneven" alone
        CHECK(standin::order_violations().empty());
        CHECK(standin::live() == standin::Live{});
    }
}

}  // namespace options_test
