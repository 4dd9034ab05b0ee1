// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/mpi/environment.hpp>
#include <shardkit/verbs/split.hpp>

#include "interposed.hpp"
#include "test_size.hpp"
#include "unit/backend/verb_suite.hpp"
#include "with_world.hpp"

namespace verbs_test {

namespace {

using namespace shardkit;
using namespace verb_suite;
using namespace mpi_test;

/// What this host can give away, the same on every rank. A host that does not say has it all.
int least_free_memory_in_gibibytes() {
    int least = std::numeric_limits<int>::max();
    std::ifstream lines("/proc/meminfo");
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("MemAvailable:")) {
            least = static_cast<int>(std::stoll(line.substr(line.find(':') + 1)) >> 20);
        }
    }
    MPI_Allreduce(MPI_IN_PLACE, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return least;
}

}  // namespace

// Of a type of registers, one that is converted, and one of odd addresses.
TEST_CASE_TEMPLATE("mpi: every verb and size gives the serial result bit for bit, in shared memory and by messages",
                   T, float, bf16, std::uint8_t) {
    with_world({}, [](const auto& world) { CHECK_NOTHROW(every_verb<T>(world)); });
    with_world({.shared_memory = false}, [](const auto& world) { CHECK_NOTHROW(every_verb<T>(world)); });
}

TEST_CASE("mpi: reductions of every other element type give the serial result bit for bit") {
    for (const bool shared_memory : {true, false}) {
        with_world({.shared_memory = shared_memory}, [](const auto& world) {
            CHECK_NOTHROW(reductions<double, double>(world));
            CHECK_NOTHROW(reductions<fp16, fp16>(world));
            CHECK_NOTHROW(reductions<std::int64_t, std::int64_t>(world));
            CHECK_NOTHROW(reductions<std::int32_t, std::int32_t>(world));
        });
    }
}

TEST_CASE("mpi: memory that a rank brings itself goes by messages, on every rank, to the same bits") {
    with_world({}, [](const auto& world) {
        for (std::size_t odd = 0; odd <= world.size(); ++odd) {
            values_in_buffers = odd < world.size() && world.rank() != odd;
            CHECK_NOTHROW(check_all_gather<float>(world, 4321, 1));
            CHECK_NOTHROW(check_copies<double>(world, 1234, 1));
            CHECK_NOTHROW(check_uneven<double>(world, 1234, 1));
            CHECK_NOTHROW(check_reduce_scatter<bf16, float>(world, 1234, 1));
            CHECK_NOTHROW(check_all_reduce<bf16, float>(world, 20011, 1));
        }
        values_in_buffers = true;
    });
}

TEST_CASE("mpi: every way of running a World gives the same bits") {
    for (const mpi::Options& options : ways) {
        CAPTURE(options.overlap);
        CAPTURE(options.shared_memory);
        CAPTURE(options.ranks_per_host);
        CAPTURE(options.compare_calls);
        CAPTURE(options.message_elements);
        with_world(options, [](const auto& world) {
            CHECK_NOTHROW(check_all_gather<float>(world, 4321, 1));
            CHECK_NOTHROW(check_copies<double>(world, 1234, 1));
            CHECK_NOTHROW(check_uneven<double>(world, 1234, 1));
            CHECK_NOTHROW(check_send_and_receive<bf16>(world, 1234));
            CHECK_NOTHROW(check_reduce_scatter<bf16, float>(world, 1234, 1));
            CHECK_NOTHROW(check_all_reduce<bf16, float>(world, 20011, 1));
        });
    }
}

TEST_CASE("mpi: unsigned words reduce modulo their size") {
    with_world({}, [](const auto& world) { CHECK_NOTHROW(unsigned_words(world)); });
}

TEST_CASE("mpi: reductions into another type add in that type's arithmetic and round once") {
    with_world({}, [](const auto& world) {
        CHECK_NOTHROW(reductions_into_another_type(world));
        CHECK_NOTHROW(sixteen_bit_sums_are_rounded_once(world));
    });
}

TEST_CASE("mpi: a NaN of any rank survives every reduction") {
    with_world({}, [](const auto& world) { CHECK_NOTHROW(a_nan_survives_every_reduction(world)); });
    with_world({.sums = mpi::Sums::by_mpi},
               [](const auto& world) { CHECK_NOTHROW(a_nan_survives_every_reduction(world)); });
}

TEST_CASE("mpi: sizes that do not fit are refused before anything is communicated") {
    if (mpi::Environment::size() == 1) { return; }
    with_world({}, [](const auto& world) { CHECK_NOTHROW(sizes_that_do_not_fit_are_refused(world)); });
}

TEST_CASE("mpi: splits in a loop take no more communicators of MPI than are in use at once") {
    interposed::restart();
    with_world({}, [](const auto& world) {
        const std::size_t rank = world.rank();
        const auto half = split(world, rank % 2, 0, "half");
        std::optional<std::remove_cvref_t<decltype(half)>> kept;
        for (std::size_t i = 0; i < 60; ++i) {
            const auto other = split(world, rank % 2, 0, "half");
            const auto inner = split(other, i % 3 == 0 ? other.rank() : 0, rank, "inner");
            CHECK_NOTHROW(check_all_reduce<float, float>(half, 50, 0));
            CHECK_NOTHROW(check_all_reduce<float, float>(other, 50, 0));
            CHECK_NOTHROW(check_all_reduce<float, float>(inner, 50, 0));
            if (rank == 0 && i == 10) { kept = other; }  // not given out again, though the others hold it no more
        }
        if (kept) { CHECK(kept->size() == half.size()); }
    });
    const auto made = interposed::calls().find("MPI_Comm_split");
    REQUIRE(made != interposed::calls().end());
    CHECK(made->second <= 5);
}

TEST_CASE("mpi: splits order their members, nest and run at once") {
    with_world({}, [](const auto& world) {
        for (std::uint64_t colouring = 0; colouring < 32; ++colouring) {
            CHECK_NOTHROW(split_orders_members(world, verb_oracle::mixed(colouring)));
        }
        CHECK_NOTHROW(splits_run_at_once(world, 5));
        CHECK_THROWS_AS(split(world, std::size_t{1} << 63U, 0, "x"), std::invalid_argument);
    });
}

TEST_CASE("mpi: a borrowed communicator is used as it is, and gets its error handler back") {
    MPI_Comm mine = MPI_COMM_NULL;
    REQUIRE(MPI_Comm_split(MPI_COMM_WORLD, 0, -static_cast<int>(mpi::Environment::rank()), &mine) == MPI_SUCCESS);
    {
        mpi::World world(mpi::Borrow{mine}, patient());
        CHECK(world.world_group().channels.front().comm == mine);
        const shardkit::Communicator comm(world);
        CHECK(comm.rank() == comm.size() - 1 - mpi::Environment::rank());
        CHECK_NOTHROW(every_verb<float>(comm));
        world.finish();
    }
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    REQUIRE(MPI_Comm_get_errhandler(mine, &handler) == MPI_SUCCESS);
    CHECK(handler == MPI_ERRORS_ARE_FATAL);
    MPI_Comm_free(&mine);
}

TEST_CASE("mpi: Worlds come and go, and several live at once") {
    for (int i = 0; i < 10; ++i) {
        mpi::World outer(MPI_COMM_WORLD, patient());
        mpi::World inner(MPI_COMM_WORLD, patient({.overlap = i % 2 == 1}));
        CHECK_NOTHROW(check_all_reduce<float, float>(shardkit::Communicator(inner), 100, 1));
        CHECK_NOTHROW(check_all_reduce<float, float>(shardkit::Communicator(outer), 100, 1));
        inner.finish();
        outer.finish();
    }
}

// A rank that has left may have told so before a slower one sees what the two made together.
TEST_CASE("mpi: ranks that call nothing in a World or group may leave it while the others still make it") {
    for (int i = 0; i < 60; ++i) {
        mpi::World world(MPI_COMM_WORLD, patient());
        if (i % 2 == 1) {
            const shardkit::Communicator comm(world);
            CHECK(split(comm, comm.rank() % 2, 0, "half").size() <= comm.size());
        }
        world.finish();
    }
}

TEST_CASE("mpi: the log counts what ranks receive, against closed forms") {
    with_world({}, [](const auto& world) {
        const std::uint64_t n = world.size();
        std::vector<float> shard(2500);
        std::vector<float> full(2500 * n);
        std::vector<bf16> half(64000 * n);
        std::vector<float> wide(64000 * n);
        world.traffic().clear();
        all_gather(world, std::span<const float>(shard), std::span<float>(full), {});
        reduce_scatter(world, ReduceOp::sum, std::span<const float>(full), std::span<float>(shard), {});
        all_reduce(world, ReduceOp::sum, std::span<const bf16>(half), std::span<float>(wide), {});
        all_reduce_in_place(world, ReduceOp::sum, std::span<float>(full).first(10), {});
        broadcast(world, std::span<float>(full), 0, {});
        barrier(world, {});
        const auto moved = [&](Verb verb) { return world.traffic().total(verb).moved.value; };
        CHECK(moved(Verb::all_gather) == (n - 1) * 2500 * 4);
        CHECK(moved(Verb::reduce_scatter) == (n - 1) * 2500 * 4);
        // 64000 from each peer at 2 bytes and as many results at 4; the 10 are gathered by everybody.
        CHECK(moved(Verb::all_reduce) == (n - 1) * (64000 * 2 + 64000 * 4 + 10 * 4));
        CHECK(moved(Verb::broadcast) == (world.rank() == 0 ? 0 : n * 2500 * 4));
        CHECK(world.traffic().total(Verb::barrier).calls == (n > 1 ? 1U : 0U));
    });
}

TEST_CASE("mpi: spans of more than 2^31 bytes, in pieces of at most 2^30 elements") {
    const std::size_t n = mpi::Environment::size();
    if (n != 2 || test_size::reduced()) { return; }
    // One job has a rank's own part past 2^31 elements as well: see meson.build.
    const bool longest = std::getenv("SHARDKIT_TEST_LONGEST_SPANS") != nullptr;
    const std::size_t k = (std::size_t{1} << (longest ? 31U : 30U)) + 17;
    if (const int gibibytes = longest ? 11 : 5; least_free_memory_in_gibibytes() < gibibytes) {
        MESSAGE("left out: it takes " << gibibytes << " GiB of memory");
        return;
    }
    with_world({}, [k](const auto& world) {
        std::vector<std::uint8_t> full(2 * k);
        const std::span<std::uint8_t> mine = std::span(full).subspan(world.rank() * k, k);
        const std::span<std::uint8_t> theirs = std::span(full).subspan((1 - world.rank()) * k, k);
        // Its length is odd, so that no piece that is lost, moved or taken twice looks right.
        std::vector<std::uint8_t> pattern(65537);
        for (std::size_t i = 0; i < pattern.size(); ++i) {
            pattern[i] = static_cast<std::uint8_t>(i * 2654435761U >> 24U);
        }
        const auto for_each_period = [&](auto f) {
            for (std::size_t at = 0; at < full.size(); at += pattern.size()) {
                const std::size_t count = std::min(pattern.size(), full.size() - at);
                f(at, count);
            }
        };
        const auto wrong_periods = [&] {
            std::size_t wrong = 0;
            for_each_period([&](std::size_t at, std::size_t count) {
                wrong += std::memcmp(&full[at], pattern.data(), count) == 0 ? 0U : 1U;
            });
            return wrong;
        };
        const auto double_pattern = [&] {
            for (std::uint8_t& value : pattern) { value = static_cast<std::uint8_t>(2 * value); }
        };
        for_each_period([&](std::size_t at, std::size_t count) { std::memcpy(&full[at], pattern.data(), count); });
        std::ranges::fill(theirs, std::uint8_t{0});
        all_gather_in_place(world, std::span<std::uint8_t>(full), {});
        CHECK(wrong_periods() == 0);
        reduce_scatter_in_place(world, ReduceOp::sum, std::span<std::uint8_t>(full), {});
        double_pattern();
        send_receive(world, std::span<const std::uint8_t>(mine), 1 - world.rank(), theirs, 1 - world.rank(), {});
        CHECK(wrong_periods() == 0);
        if (k > std::size_t{1} << 31U) { return; }
        all_reduce_in_place(world, ReduceOp::sum, std::span<std::uint8_t>(full), {});
        double_pattern();
        CHECK(wrong_periods() == 0);
    });
}

}  // namespace verbs_test
