// SPDX-License-Identifier: Apache-2.0
// One comparison for each step in place of one for each call.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/mpi/environment.hpp>
#include <shardkit/backend/mpi/run.hpp>
#include <shardkit/comm/compare_calls.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/verbs/all_gather.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verbs/all_to_all.hpp>
#include <shardkit/verbs/barrier.hpp>

#include "interposed.hpp"
#include "shared_count.hpp"
#include "unit/backend/verb_suite.hpp"
#include "unit/sharded/oracle_checks.hpp"
#include "unit/thrown_message.hpp"
#include "with_world.hpp"

namespace compare_calls_test {

namespace {

using namespace shardkit;
using namespace verb_suite;
using namespace mpi_test;
using Comm = shardkit::Communicator;

/// Of two hosts at least, or of ranks that share no memory.
const mpi::Options ways[] = {{.ranks_per_host = 1}, {.ranks_per_host = 2}, {.shared_memory = false}};
constexpr std::size_t many = 6000;

mpi::Options with(mpi::Options options, CompareCalls when) {
    options.compare_calls = when;
    return patient(options);
}
/// Comparisons in f(): nothing else of these tests all-reduces by MPI.
template <class F>
int comparisons(F f) {
    interposed::restart();
    f();
    const auto found = interposed::calls().find("MPI_Iallreduce");
    return found == interposed::calls().end() ? 0 : found->second;
}
bool by_messages(const mpi::Options& options) {
    const std::size_t n = mpi::Environment::size();
    return n > 1 && (!options.shared_memory || n > options.ranks_per_host);
}

const engine::CallSubject parameters("'layer' parameters");
const engine::CallSubject others("'other' parameters");

}  // namespace

TEST_CASE("mpi: calls that say what they are for are compared once at each step, others of shared memory each") {
    for (const mpi::Options& way : ways) {
        CAPTURE(way.shared_memory);
        CAPTURE(way.ranks_per_host);
        const int each = by_messages(way) ? 1 : 0;
        for (const CompareCalls when : {CompareCalls::each_call, CompareCalls::each_step}) {
            const bool at_steps = when == CompareCalls::each_step;
            mpi::World world(MPI_COMM_WORLD, with(way, when));
            const Comm comm(world);
            auto full = comm.buffer<float>(comm.size() * many);
            const auto step = [&](const engine::CallSubject* subject) {
                for (int i = 0; i < 5; ++i) {
                    all_gather_in_place(comm, full.span(), {}, {SourceLocation::current(), subject});
                }
            };
            const int first = comparisons([&] { step(&parameters); });
            CHECK(first == (!at_steps ? 5 * each : way.shared_memory ? each : 0));
            CHECK(comparisons([&] { step(&parameters); }) == (at_steps ? 0 : 5 * each));
            CHECK(comparisons([&] { step(nullptr); }) == (at_steps && !way.shared_memory ? 0 : 5 * each));
            CHECK(comparisons([&] { compare_calls(comm); }) == (at_steps ? each : 0));
            world.finish();
        }
    }
}

TEST_CASE("mpi: counts of an uneven all-to-all that contradict each other are told at the step's comparison") {
    const std::size_t n = mpi::Environment::size();
    if (n == 1) { return; }
    for (const mpi::Options& way : ways) {
        if (!by_messages(way)) { continue; }
        CAPTURE(way.shared_memory);
        CAPTURE(way.ranks_per_host);
        mpi::World world(MPI_COMM_WORLD, with(way, CompareCalls::each_step));
        const Comm comm(world);
        auto sent = comm.buffer<float>(n * 10);
        auto received = comm.buffer<float>(n * 10);
        const auto exchange = [&](std::size_t first_expects) {
            std::vector<std::size_t> sends(n, 8);
            std::vector<std::size_t> receives(n, 8);
            if (comm.rank() == 0) { receives[n - 1] = first_expects; }
            const std::size_t all = comm.rank() == 0 ? 8 * (n - 1) + first_expects : 8 * n;
            all_to_all_uneven(comm, sent.span().first(8 * n), sends, received.span().first(all), receives, {},
                              {SourceLocation::current(), &parameters});
        };
        exchange(8);
        CHECK(comparisons([&] { exchange(8); }) == 0);
        CHECK(comparisons([&] { compare_calls(comm); }) == 2);
        exchange(9);  // MPI takes a shorter message
        const std::string text = thrown_message<CommError>([&] { compare_calls(comm); });
        CAPTURE(text);
        CHECK(has(text, "the ranks disagree in call 2: rank " + std::to_string(n - 1) +
                            " calls all_to_all_uneven of fp32 for 'layer' parameters with 8 to rank 0 at "));
        CHECK(has(text, "rank 0 calls all_to_all_uneven of fp32 for 'layer' parameters with 9 from rank " +
                            std::to_string(n - 1) + " at "));
        CHECK_NOTHROW(compare_calls(comm));
        world.finish();
    }
}

TEST_CASE("mpi: training whose calls are compared at each step, to the same bits, with a comparison for each step") {
    const toy::Mesh mesh(mpi::Environment::size(), 1, 1);
    const toy::Training training{
        .steps = 5, .samples = 24, .microbatches = 2, .rule = toy::Rule::adamw, .learning_rate = 0.01, .clip = 1};
    const auto expected = toy::train<Precision<float>>(mesh, FullShard{}, training);
    for (const mpi::Options& way : ways) {
        CAPTURE(way.shared_memory);
        CAPTURE(way.ranks_per_host);
        std::optional<toy::RankResult> result;
        int before = 0;
        int after = 0;
        const auto so_far = [] {
            const auto found = interposed::calls().find("MPI_Iallreduce");
            return found == interposed::calls().end() ? 0 : found->second;
        };
        const toy::Hooks hooks{.before_step = [&](std::size_t, std::size_t step) {
            if (step == 2) { before = so_far(); }
            if (step == training.steps - 1) { after = so_far(); }
        }};
        interposed::restart();
        mpi::run(
            mesh, [&](auto& rank) { result = toy::train_rank<Precision<float>>(rank, FullShard{}, training, hooks); },
            {}, with(way, CompareCalls::each_step));
        CHECK(toy::same_bits(*result, expected[mpi::Environment::rank()]));
        CHECK(after - before == (by_messages(way) ? 2 : 0));
    }
}

TEST_CASE("mpi: ranks that called different things since the last comparison are told the first, and go on") {
    if (mpi::Environment::size() == 1) { return; }
    for (const mpi::Options& way : ways) {
        if (!by_messages(way)) { continue; }
        for (const bool overlap : {false, true}) {
            CAPTURE(way.shared_memory);
            CAPTURE(way.ranks_per_host);
            CAPTURE(overlap);
            mpi::Options options = with(way, CompareCalls::each_step);
            options.overlap = overlap;
            mpi::World world(MPI_COMM_WORLD, options);
            const Comm comm(world);
            auto full = comm.buffer<float>(comm.size() * many);
            const auto gather = [&](const engine::CallSubject& subject, std::uint64_t stated = 0) {
                all_gather_in_place(comm, full.span(), world.reduction_stream(),
                                    {SourceLocation::current(), &subject, stated});
            };
            for (int i = 0; i < 2; ++i) {
                gather(parameters);
                gather(others);
                CHECK_NOTHROW(compare_calls(comm));
            }
            // Of another number that no buffer shows.
            gather(parameters, comm.rank() == 0 ? 7 : 8);
            const std::string text = thrown_message<CommError>([&] { compare_calls(comm); });
            CAPTURE(text);
            CHECK(has(text, "mpi: compare_calls over world at "));
            CHECK(has(text,
                      "the ranks disagree in call 4: rank 0 calls all_gather of 6000 fp32 for 'layer' parameters"));
            CHECK(has(text, "compare_calls_test.cpp:"));
            CHECK_NOTHROW(compare_calls(comm));
            // Of another group of the same size, which ranks of one host tell each other at once.
            if (way.ranks_per_host != 2) {
                gather(comm.rank() == 0 ? parameters : others);
                CHECK_THROWS_WITH_AS(compare_calls(comm), doctest::Contains("for 'other' parameters"), CommError);
            }
            gather(parameters);
            CHECK_NOTHROW(compare_calls(comm));
            CHECK_NOTHROW(check_all_reduce<float, float>(comm, 100, 1));
            world.finish();
        }
    }
}

TEST_CASE("mpi: calls compared at each step go the way that was agreed on first, whosever memory nobody sees") {
    for (const mpi::Options& way : ways) {
        mpi::World world(MPI_COMM_WORLD, with(way, CompareCalls::each_step));
        const Comm comm(world);
        const std::size_t n = comm.size();
        auto seen = comm.buffer<float>(n * many);
        std::vector<float> hidden(n * many);
        const std::span<float> full = comm.rank() == 0 ? std::span<float>(hidden) : seen.span();
        for (int i = 0; i < 3; ++i) {
            std::fill(full.begin(), full.end(), static_cast<float>(comm.rank()));
            all_gather_in_place(comm, full, {}, {SourceLocation::current(), &parameters});
            bool right = true;
            for (std::size_t j = 0; j < full.size(); ++j) {
                right = right && full[j] == static_cast<float>(j / many);
            }
            CHECK(right);
            barrier(comm, {});
        }
        world.finish();
    }
}

TEST_CASE("mpi: a barrier is one, also where calls are compared at each step") {
    for (const mpi::Options& way : ways) {
        SharedCount came;
        mpi::World world(MPI_COMM_WORLD, with(way, CompareCalls::each_step));
        const Comm comm(world);
        for (int i = 1; i <= 5; ++i) {
            came.add();
            barrier(comm, {});
            CHECK(came.reaches(i * static_cast<int>(comm.size()), std::chrono::seconds(0)));
        }
        world.finish();
    }
}

}  // namespace compare_calls_test
