// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/nccl/call.hpp>
#include <shardkit/backend/nccl/group_guard.hpp>
#include <shardkit/backend/nccl/native.hpp>
#include <shardkit/verbs/split.hpp>

#include "../verb_checks.hpp"
#include "gpu_ranks.hpp"
#include "unit/thrown_message.hpp"

namespace failure_test {

namespace {

using namespace shardkit;
using namespace verb_checks;
using gpu_ranks::Comm;
using rank_checks::contains;
using rank_checks::Kind;
using rank_checks::Outcome;

constexpr std::size_t ranks = 3;

/// A sum over all ranks for which the host waits.
void sum_and_wait(const Comm& comm) { check_all_reduce<float, float>(comm, 1000, 1); }

/// What each rank ended with; all of them ended soon after the impatient World's timeout.
template <class F>
std::vector<Outcome> outcomes_of(standin::Pace pace, const F& f) {
    gpu_ranks::restart(pace);
    std::vector<Outcome> outcomes;
    const auto duration =
        rank_checks::duration_of([&] { outcomes = gpu_ranks::with_world(ranks, gpu_ranks::impatient(), f); });
    CHECK(duration < std::chrono::seconds(rank_checks::sanitized ? 30 : 10));
    CHECK(standin::hangs() == 0);
    CHECK(standin::live().communicators == 0);
    CHECK(standin::live().streams == 0);
    return outcomes;
}

void check_all_are_comm_errors(const std::vector<Outcome>& outcomes) {
    for (const Outcome& outcome : outcomes) {
        CAPTURE(outcome.text);
        CHECK(outcome.kind == Kind::comm);
    }
}

}  // namespace

TEST_CASE("nccl: an asynchronous error of one rank ends all ranks") {
    for (const standin::Pace pace : gpu_ranks::paces) {
        const auto outcomes = outcomes_of(pace, [](const Comm& world, nccl::World&) {
            sum_and_wait(world);
            if (world.rank() == 1) { standin::set_async_error(nccl::native(world), ncclRemoteError); }
            sum_and_wait(world);
        });
        check_all_are_comm_errors(outcomes);
        CHECK(contains(outcomes[1].text, "returned 6"));
        CHECK(contains(outcomes[0].text, "within " + gpu_ranks::after_short_timeout) +
                  contains(outcomes[0].text, "after " + gpu_ranks::after_short_timeout) ==
              1);
    }
}

TEST_CASE("nccl: an asynchronous error that comes while the host waits is thrown by the wait") {
    const auto outcomes = outcomes_of(standin::Pace::lazy, [](const Comm& world, nccl::World&) {
        const auto stream = verb_values::Bench<Comm>::stream(world);
        Values<float, Comm> values = verb_values::input<float>(world, world.rank(), 100, 0);
        if (world.rank() != 2) { all_reduce_in_place(world, ReduceOp::sum, values.span(), stream); }
        standin::set_async_error(nccl::native(world), ncclRemoteError);
        stream.synchronize();
        sum_and_wait(world);  // rank 2 had nothing to wait for
    });
    check_all_are_comm_errors(outcomes);
    CHECK(contains(outcomes[0].text, "synchronize at "));
    CHECK(contains(outcomes[0].text, "an earlier call over world failed"));
}

TEST_CASE("nccl: a rank that is gone without a word ends the others after their timeout") {
    for (const standin::Pace pace : gpu_ranks::paces) {
        const auto outcomes = outcomes_of(pace, [](const Comm& world, nccl::World&) {
            sum_and_wait(world);
            if (world.rank() == 2) {
                standin::kill_rank(nccl::native(world));
                throw rank_checks::Planted("gone");
            }
            sum_and_wait(world);
        });
        CHECK(outcomes[2].kind == Kind::planted);
        CHECK(outcomes[0].kind == Kind::comm);
        CHECK(outcomes[1].kind == Kind::comm);
        CHECK(contains(outcomes[0].text, gpu_ranks::after_short_timeout));
    }
}

TEST_CASE("nccl: a rank that leaves with an exception ends the others, and so do sub-communicators") {
    for (const standin::Pace pace : gpu_ranks::paces) {
        const auto outcomes = outcomes_of(pace, [](const Comm& world, nccl::World&) {
            const Comm reversed = split(world, 0, world.size() - world.rank(), "reversed");
            if (world.rank() == 0) { throw rank_checks::Planted("gone"); }
            sum_and_wait(reversed);
        });
        CHECK(outcomes[0].kind == Kind::planted);
        CHECK(outcomes[1].kind == Kind::comm);
        CHECK(outcomes[2].kind == Kind::comm);
    }
}

TEST_CASE("nccl: a World whose peers are gone is destroyed within its timeout") {
    const auto outcomes = outcomes_of(standin::Pace::lazy, [](const Comm& world, nccl::World& handle) {
        if (world.rank() == 1) {
            standin::kill_rank(nccl::native(world));
        } else {
            Values<float, Comm> values = verb_values::input<float>(world, world.rank(), 100, 0);
            all_reduce_in_place(world, ReduceOp::sum, values.span(), world.streams().communication);
        }
        handle.abort();
        throw rank_checks::Planted("nobody calls finish");
    });
    for (const Outcome& outcome : outcomes) { CHECK(outcome.kind == Kind::planted); }
    // Without an exception and without finish: the destructor finishes, or gives up.
    gpu_ranks::restart();
    const nccl::UniqueId id = nccl::UniqueId::create();
    const auto ends = gpu_ranks::each_in_a_thread(2, [&](std::size_t rank) {
        nccl::World world(id, 2, rank, gpu_ranks::impatient());
        const Comm comm(world);
        auto values = comm.buffer<float>(100);
        if (rank == 0) { all_reduce_in_place(comm, ReduceOp::sum, values.span(), world.streams().communication); }
    });
    CHECK(gpu_ranks::first_error(ends) == "");
    CHECK(standin::hangs() == 0);
    CHECK(standin::live().communicators == 0);
}

TEST_CASE("nccl: an error of a verb names NCCL's call and text and the user's line, and ends the World") {
    const std::string here = __FILE__;
    for (const standin::Pace pace : gpu_ranks::paces) {
        std::string again;
        const auto outcomes = outcomes_of(pace, [&](const Comm& world, nccl::World&) {
            const auto stream = verb_values::Bench<Comm>::stream(world);
            Values<float, Comm> values = verb_values::input<float>(world, world.rank(), 100, 0);
            values.span();
            if (world.rank() == 1) { standin::fail_next("ncclAllReduce", ncclInternalError, 1); }
            try {
                all_reduce_in_place(world, ReduceOp::sum, values.span(), stream);
                stream.synchronize();
            } catch (const CommError&) {
                expect(nccl::native(world) == nullptr, "the World has aborted its communicators");
                if (world.rank() == 1) {
                    try {
                        all_gather_in_place(world, values.span().first(99), stream);
                    } catch (const CommError& error) { again = error.what(); }
                }
                throw;
            }
        });
        check_all_are_comm_errors(outcomes);
        CAPTURE(outcomes[1].text);
        CHECK(contains(outcomes[1].text, "nccl: all_reduce over world at " + here + ":"));
        CHECK(contains(outcomes[1].text, "ncclAllReduce returned 3 ("));
        CHECK(contains(again, "all_gather over world"));
        CHECK(contains(again, "after an earlier failure: all_reduce over world at "));
    }
}

TEST_CASE("nccl: an error inside a group of calls is thrown once the group has ended") {
    for (const char* const call : {"ncclSend", "ncclRecv", "ncclGroupEnd"}) {
        CAPTURE(call);
        const auto outcomes = outcomes_of(standin::Pace::lazy, [&](const Comm& world, nccl::World&) {
            sum_and_wait(world);
            if (world.rank() == 0) { standin::fail_next(call, ncclSystemError, 0); }
            check_copies<float>(world, 10, 1);
        });
        check_all_are_comm_errors(outcomes);
        CHECK(contains(outcomes[0].text, std::string(call) + " returned 2"));
    }
}

TEST_CASE("nccl: a group that is left without submit is ended, and its errors are dropped") {
    gpu_ranks::restart();
    nccl::World world(nccl::UniqueId::create(), 1, 0, gpu_ranks::impatient());
    const nccl::detail::Call call{
        world.state(), world.state().world_group(), "world",
        Verb::send,    SourceLocation::current(),   gpu::TimelineRef(world.streams().communication)};
    {
        nccl::detail::GroupGuard together(call);
        together.add("ncclSend", ncclInvalidArgument);
    }
    CHECK(standin::calls("ncclGroupStart") == standin::calls("ncclGroupEnd"));
    CHECK_NOTHROW(sum_and_wait(Comm(world)));
}

TEST_CASE("nccl: ranks that disagree about a call all end with an error") {
    for (const standin::Pace pace : gpu_ranks::paces) {
        const auto outcomes = outcomes_of(pace, [](const Comm& world, nccl::World&) {
            check_all_reduce<float, float>(world, world.rank() == 1 ? 100 : 101, 1);
        });
        check_all_are_comm_errors(outcomes);
        // The first rank that is told aborts, which the others may see before they are told themselves.
        CHECK(std::any_of(outcomes.begin(), outcomes.end(),
                          [](const auto& outcome) { return contains(outcome.text, "returned 5"); }));
    }
}

TEST_CASE("nccl: a split that fails on one rank fails on all") {
    const auto outcomes = outcomes_of(standin::Pace::lazy, [](const Comm& world, nccl::World&) {
        if (world.rank() == 0) { standin::fail_next("ncclCommSplit", ncclSystemError, 0); }
        split(world, world.rank() % 2, 0, "part");
    });
    check_all_are_comm_errors(outcomes);
    CHECK(contains(outcomes[0].text, "split over world"));
    CHECK(contains(outcomes[0].text, "ncclCommSplit returned 2"));
    CHECK(contains(outcomes[1].text, gpu_ranks::after_short_timeout));
}

TEST_CASE("nccl: a rank that cannot connect, or has no memory, fails the World on every rank") {
    struct Plan {
        std::string call;
        Kind own;
    };
    for (const Plan& plan :
         {Plan{"ncclCommInitRankConfig", Kind::comm}, Plan{"cudaMalloc", Kind::other},
          Plan{"cudaStreamCreateWithPriority", Kind::other}, Plan{"cudaMallocHost", Kind::other}}) {
        CAPTURE(plan.call);
        gpu_ranks::restart();
        if (plan.own == Kind::comm) {
            standin::fail_next(plan.call, ncclSystemError, 1);
        } else {
            standin::fail_next(plan.call, cudaErrorMemoryAllocation, 1);
        }
        const auto outcomes = gpu_ranks::with_world(ranks, gpu_ranks::impatient(),
                                                    [](const Comm& world, nccl::World&) { sum_and_wait(world); });
        CHECK(outcomes[1].kind == plan.own);
        CHECK(contains(outcomes[1].text, plan.call));
        CHECK(outcomes[0].kind == Kind::comm);
        CHECK(outcomes[2].kind == Kind::comm);
        CHECK(contains(outcomes[0].text, "not every rank has made this call within " +
                                             gpu_ranks::after_short_timeout + " (ncclCommInitRankConfig)"));
        standin::Live left = standin::live();
        left.queued = 0;  // a stream that is destroyed still does its work
        CHECK(left == standin::Live{});
    }
}

TEST_CASE("nccl: an NCCL that is too old is refused with both versions") {
    gpu_ranks::restart();
    standin::set_nccl_version(21705);
    std::string text;
    try {
        nccl::World world(nccl::UniqueId::create(), 1, 0, gpu_ranks::impatient());
    } catch (const CommError& error) { text = error.what(); }
    CHECK(contains(text, "NCCL 2.17.5 is loaded, expected 2.18.0 or later"));
    CHECK(nccl::version_text(2708) == "2.7.8");
    CHECK(standin::live() == standin::Live{});

    standin::set_nccl_version(21801);
    nccl::Options options = gpu_ranks::impatient();
    options.registration = nccl::Registration::buffers;
    try {
        nccl::World world(nccl::UniqueId::create(), 1, 0, options);
    } catch (const CommError& error) { text = error.what(); }
    CHECK(contains(text, "registered buffers"));
    CHECK(contains(text, "NCCL 2.18.1 is loaded, expected 2.19.1 or later"));
}

TEST_CASE("nccl: ranks and streams that make no sense are refused before anything is made") {
    gpu_ranks::restart();
    const nccl::UniqueId id = nccl::UniqueId::create();
    CHECK_THROWS_AS(nccl::World(id, 2, 2), std::invalid_argument);
    CHECK_THROWS_AS(nccl::World(id, 0, 0), std::invalid_argument);
    nccl::Options options;
    options.communication = cudaStreamPerThread;
    CHECK_THROWS_AS(nccl::World(id, 1, 0, options), std::invalid_argument);
    CHECK_THROWS_AS(nccl::World(nccl::Borrow{nullptr}), std::invalid_argument);
    CHECK(standin::calls("ncclCommInitRankConfig") == 0);
    CHECK(standin::live() == standin::Live{});
}

TEST_CASE("nccl: a finished World refuses verbs, and can be finished again") {
    gpu_ranks::restart();
    nccl::World world(nccl::UniqueId::create(), 1, 0, gpu_ranks::impatient());
    const Comm comm(world);
    auto values = comm.buffer<float>(10);
    world.finish();
    world.finish();
    CHECK_USAGE_ERROR(barrier(comm, world.streams().communication), "nccl: barrier over world after World::finish");
}

}  // namespace failure_test
