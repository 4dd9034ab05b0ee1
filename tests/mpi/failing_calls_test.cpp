// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstddef>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/mpi/environment.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/verbs/all_to_all.hpp>
#include <shardkit/verbs/split.hpp>

#include "interposed.hpp"
#include "unit/backend/verb_suite.hpp"
#include "with_world.hpp"

namespace failing_calls_test {

namespace {

using namespace shardkit;
using rank_checks::contains;
namespace interposed = mpi_test::interposed;

std::string text_of(int code) {
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    REQUIRE(MPI_Error_string(code, text, &length) == MPI_SUCCESS);
    return {text, static_cast<std::size_t>(length)};
}

/// Everything that a job may ask of MPI, on memory of its own, but for a broadcast, whose root alone sends. Every
/// rank makes as many calls of each MPI function, except where it asks again and again.
struct Job {
    MPI_Comm comm;
    mpi::Options options;
    bool borrow;
    std::vector<float> in = std::vector<float>(512, 1.0F);
    std::vector<float> out = std::vector<float>(512);
    bool probe_fails = false;  ///< in `finish`, which always probes; a wait does so by chance
    std::deque<mpi::World> world{};

    void run() {
        if (borrow) {
            world.emplace_back(mpi::Borrow{comm}, options, SourceLocation::current());
        } else {
            world.emplace_back(comm, options, SourceLocation::current());
        }
        const shardkit::Communicator everybody(world[0]);
        const auto group = split(everybody, 0, everybody.rank(), "group");
        const std::size_t n = group.size();
        const std::span<const float> from(in);
        const std::span<float> to(out);
        barrier(group, {});
        all_gather(group, from.first(128), to.first(n * 128), {});
        all_to_all(group, from.first(384), to.first(384), {});
        const std::vector<std::size_t> alike(n, 384 / n);
        all_to_all_uneven(group, from.first(384 / n * n), alike, to.first(384 / n * n), alike, {});
        // The sizes are such that staging memory takes each in some rounds, every rank in as many, and one all-reduce
        // travels with the call.
        reduce_scatter(group, ReduceOp::sum, from.first(n * 128), to.first(128), {});
        all_reduce(group, ReduceOp::sum, from.first(384), to.first(384), {});
        all_reduce(group, ReduceOp::sum, from.first(8), to.first(8), {});
        send_receive(group, from.first(128), (group.rank() + 1) % n, to.first(128), (group.rank() + n - 1) % n, {});
        if (probe_fails) { interposed::fail("MPI_Iprobe"); }
        world[0].finish();
    }
    /// Takes back the messages that wait for what did not start.
    void cancel() {
        if (world.empty()) { return; }
        world[0].execute({}, SourceLocation::current(), [](mpi::detail::Lane& lane) {
            for (MPI_Request& request : lane.requests()) {
                if (request == MPI_REQUEST_NULL) { continue; }
                MPI_Cancel(&request);
                MPI_Wait(&request, MPI_STATUS_IGNORE);
            }
        });
    }
};

/// Jobs that failed, kept to the end of the process: what they started may still write to their memory, and messages
/// that nobody took stay (MPICH says so at the end).
Job& new_job(const mpi::Options& options, MPI_Comm lent = MPI_COMM_NULL) {
    static std::deque<Job> jobs;
    return jobs.emplace_back(Job{
        .comm = lent == MPI_COMM_NULL ? MPI_COMM_WORLD : lent, .options = options, .borrow = lent != MPI_COMM_NULL});
}

/// The text of the CommError that f() throws.
template <class F>
std::string error_of(F f) {
    try {
        f();
    } catch (const CommError& error) { return error.what(); }
    return "no error";
}

void check_names(const std::string& error, std::string_view function) {
    CAPTURE(error);
    CAPTURE(function);
    CHECK(contains(
        error, shardkit::detail::concat(": ", function, " returned ", MPI_ERR_OTHER, ": ", text_of(MPI_ERR_OTHER))));
    CHECK(contains(error, "failing_calls_test.cpp:"));
}

/// Runs the job once to count its calls, then once for each call of each function, which fails on every rank.
interposed::Calls check_each_call(mpi::Options options, bool borrow) {
    options.timeout = std::chrono::seconds(20);
    options.staging_bytes = 2000;
    const auto lent = [borrow] {
        MPI_Comm comm = MPI_COMM_NULL;
        if (borrow) { PMPI_Comm_dup(MPI_COMM_WORLD, &comm); }
        return comm;
    };
    interposed::restart();
    new_job(options, lent()).run();
    const interposed::Calls calls = interposed::calls();
    for (const auto& [function, count] : calls) {
        // These poll: how often they are called is chance.
        const bool probes = function == "MPI_Iprobe";
        const bool polls = probes || function == "MPI_Testall";
        for (int number = 1; number <= (polls ? 1 : count); ++number) {
            CAPTURE(number);
            Job& job = new_job(options, lent());
            interposed::restart();
            job.probe_fails = probes;
            if (!probes) { interposed::fail(function, number); }
            check_names(error_of([&] { job.run(); }), function);
            job.cancel();
        }
    }
    interposed::restart();
    return calls;
}

}  // namespace

TEST_CASE("mpi: every MPI call that fails is a CommError with its name, MPI's text and the caller's line") {
    const std::size_t n = mpi::Environment::size();
    // One rank alone calls next to nothing, and more than three no other functions.
    if (n == 1 || n > 3) { return; }
    interposed::Calls calls = check_each_call({}, false);
    // In pieces, in which collectives are messages; and without comparing calls, which makes a barrier one of MPI's.
    calls.merge(
        check_each_call({.shared_memory = false, .compare_calls = CompareCalls::off, .message_elements = 100}, true));
    calls.merge(check_each_call({.sums = mpi::Sums::by_mpi}, false));
    CHECK(calls.size() == 20);
}

TEST_CASE("mpi: the error of a failing call names the verb, its axes and the line that called it") {
    if (mpi::Environment::size() == 1) { return; }
    Job& job = new_job(mpi_test::patient({.sums = mpi::Sums::by_mpi}));
    mpi::World& world = job.world.emplace_back(MPI_COMM_WORLD, job.options);
    const shardkit::Communicator comm(world);
    interposed::restart();
    interposed::fail("MPI_Iallreduce");
    const std::string called =
        shardkit::detail::concat("failing_calls_test.cpp:", __LINE__ + 1, ": MPI_Iallreduce returned ");
    const std::string error = error_of([&] { all_reduce_in_place(comm, ReduceOp::sum, std::span(job.out), {}); });
    CAPTURE(error);
    CHECK(contains(error, "mpi: all_reduce over world at "));
    CHECK(contains(error, called));
    // Nothing was started, so that the World is good for more.
    CHECK_NOTHROW(verb_suite::check_copies<float>(comm, 100, 1));
    world.finish();
}

TEST_CASE("mpi: ranks that disagree and cannot say so get MPI's error") {
    if (mpi::Environment::size() == 1) { return; }
    Job& job = new_job(mpi_test::patient());
    mpi::World& world = job.world.emplace_back(MPI_COMM_WORLD, job.options);
    const shardkit::Communicator comm(world);
    interposed::restart();
    interposed::fail("MPI_Iallgather");
    check_names(error_of([&] { broadcast(comm, std::span<float>(job.out).first(comm.rank() + 1), 0, {}); }),
                "MPI_Iallgather");
    interposed::restart();
    world.finish();
}

TEST_CASE("mpi: an Environment passes on what MPI says against it") {
    interposed::restart();
    interposed::fail("MPI_Initialized");
    check_names(error_of([] { const mpi::Environment again; }), "MPI_Initialized");
    interposed::deny_initialisation();
    interposed::fail("MPI_Init_thread");
    check_names(error_of([] { const mpi::Environment again; }), "MPI_Init_thread");
    interposed::restart();
}

TEST_CASE("mpi: MPI's own complaint about a communicator that is none") {
    MPI_Errhandler before = MPI_ERRHANDLER_NULL;
    REQUIRE(MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before) == MPI_SUCCESS);
    REQUIRE(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN) == MPI_SUCCESS);
    // The class is the standard's, the code and the text are the implementation's.
    const int code = PMPI_Comm_set_errhandler(MPI_COMM_NULL, MPI_ERRORS_RETURN);
    int error_class = MPI_SUCCESS;
    REQUIRE(MPI_Error_class(code, &error_class) == MPI_SUCCESS);
    CHECK(error_class == MPI_ERR_COMM);
    const std::string error = error_of([] { const mpi::World world(MPI_COMM_NULL); });
    CAPTURE(error);
    CHECK(contains(error, "mpi: World at "));
    CHECK(contains(error, "failing_calls_test.cpp:"));
    CHECK(contains(error, ": MPI_Comm_size returned "));
    CHECK(contains(error, text_of(MPI_ERR_COMM)));
    REQUIRE(MPI_Comm_set_errhandler(MPI_COMM_WORLD, before) == MPI_SUCCESS);
}

}  // namespace failing_calls_test
