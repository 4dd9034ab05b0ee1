// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <exception>
#include <fstream>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/launch.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/recorder/record_files.hpp>
#include <shardkit/verbs/all_gather.hpp>
#include <shardkit/verbs/barrier.hpp>
#include <shardkit/verbs/send_receive.hpp>
#include <shardkit/verbs/split.hpp>

#include "../../../examples/who_is_missing/read_record.hpp"
#include "../../../examples/who_is_missing/who_is_missing.hpp"
#include "phase_checks.hpp"
#include "rank_checks.hpp"
#include "temporary_folder.hpp"

namespace threads_late_test {

namespace {

using namespace shardkit;
using namespace rank_checks;
using namespace std::chrono_literals;
using Comm = shardkit::Communicator;
using threads::launch_and_collect;

/// What a launch with planted faults told: each rank's error, and what its files say.
struct Told {
    std::vector<Outcome> outcomes;
    std::vector<std::string> late;  // what on_late was told
    flight_records::MissingRanks files;
    std::size_t records = 0;
};
/// Runs f(world) with deadlines and files.
template <class F>
Told told(std::size_t ranks, const F& f, std::chrono::milliseconds deadline = 200ms) {
    const temporary_folder::Folder folder;
    Told all;
    threads::LaunchOptions options;
    options.timeout = options.finish_timeout = deadline;
    options.record = folder.file("run");
    options.on_late = [&](const std::string& text) { all.late.push_back(text); };
    for (const std::exception_ptr& error : launch_and_collect(ranks, f, options)) {
        all.outcomes.push_back(outcome(error));
    }
    std::vector<recorder::RankRecord> records;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        if (!std::ifstream(recorder::record_file(options.record, rank))) { continue; }
        records.push_back(flight_records::read_record(recorder::record_file(options.record, rank)));
    }
    all.records = records.size();
    all.files = flight_records::who_is_missing(records);
    return all;
}
/// Every rank's error has these parts, and so have the files, which have others as well.
void check(const Told& all, const std::vector<std::string>& parts, const std::vector<std::string>& of_files = {}) {
    for (const Outcome& seen : all.outcomes) {
        CAPTURE(seen.text);
        CHECK(seen.kind == Kind::peer);
        for (const std::string& part : parts) {
            CAPTURE(part);
            CHECK(contains(seen.text, part));
        }
    }
    CHECK(all.records == all.outcomes.size());
    CAPTURE(all.files.text);
    for (const std::vector<std::string>& both : {parts, of_files}) {
        for (const std::string& part : both) {
            CAPTURE(part);
            CHECK(contains(all.files.text, part));
        }
    }
}

constexpr std::size_t sizes[] = {2, 3, 8, 64};

}  // namespace

TEST_CASE("threads: a rank that is late is named in every rank's error, in the warning and in the files") {
    for (const std::size_t ranks : sizes) {
        std::atomic<bool> over{false};
        const Told all = told(ranks, [&](const Comm& world) {
            barrier(world, {});
            if (world.rank() == 1) {
                while (!over) { std::this_thread::sleep_for(1ms); }  // computes until the others have their error
            }
            try {
                std::vector<float> values(ranks);
                all_gather_in_place(world, std::span(values), {});
            } catch (...) {
                over = true;
                throw;
            }
        });
        check(all, {"rank 1 has not entered all_gather of 1 fp32 at ", "(call 1 over world)"},
              {"rank 1 makes no call since ", "its last one was barrier at ",
               "the last call that all have finished there: barrier at ",
               ranks == 64 ? "ranks 0, 2-63 wait in " : "wait"});
        CHECK(!contains(all.outcomes[0].text, "wait"));
        CHECK(contains(all.outcomes[0].text, "not every rank has entered a call within 200 ms"));
        CHECK(all.files.ranks == std::vector<std::size_t>{1});
        // On a busy machine there may be a warning of the barrier before them.
        REQUIRE(all.late.size() >= 2);
        CHECK(contains(all.late.rbegin()[1], "late: rank 1 has not entered"));
        CHECK(contains(all.late.back(), "not every rank has entered"));
    }
}

TEST_CASE("threads: a call that all have entered, and nobody finishes, misses its own deadline") {
    std::atomic<bool> over{false};
    threads::LaunchOptions options;
    options.finish_timeout = 200ms;
    options.on_late = [&](const std::string& text) { over = contains(text, "not every rank has finished"); };
    const auto errors = launch_and_collect(
        2,
        [&](const Comm& world) {
            const Call stuck{{.verb = Verb::barrier}, 0, SourceLocation::current()};
            world.label().journal.begin(world.label(), stuck);
            for (int i = 0; i < 20'000 && !over; ++i) { std::this_thread::sleep_for(1ms); }
            barrier(world, {});
        },
        options);
    for (const std::exception_ptr& error : errors) {
        CHECK(contains(outcome(error).text,
                       "not every rank has finished a call within 200 ms: all ranks have entered, "
                       "and not all have finished: barrier at "));
    }
}

TEST_CASE("threads: a rank that is late by less than the deadline is no error") {
    std::vector<std::string> warned;
    threads::LaunchOptions options;
    options.timeout = 10s;
    threads::launch(
        3,
        [](const Comm& world) {
            for (int i = 0; i < 3; ++i) {
                if (world.rank() == static_cast<std::size_t>(i)) { std::this_thread::sleep_for(60ms); }
                barrier(world, {});
            }
        },
        options);
}

TEST_CASE("threads: ranks in another order, in another group or that nobody takes a message from are deadlocks") {
    constexpr auto deadline = 60s;  // on a busy machine 200 ms pass before a deadlock is found
    for (const std::size_t ranks : sizes) {
        const auto in_another_order = [](const Comm& world) {
            const Comm tp = split(world, 0, world.rank(), "tp");
            const Comm dp = split(world, 0, world.rank(), "dp");
            barrier(world.rank() == 0 ? tp : dp, {});
            barrier(world.rank() == 0 ? dp : tp, {});
        };
        Told all = told(ranks, in_another_order, deadline);
        check(all, {"no rank can go on: each waits for another one", "(call 0 over tp)", "(call 0 over dp)"},
              {"rank 0 waits in barrier at "});
        CHECK(contains(all.outcomes[0].text, "deadlock"));
        CHECK(contains(all.outcomes[0].text, "rank 0 has not entered barrier at "));
        const auto in_another_group = [](const Comm& world) {
            const Comm pair = split(world, world.rank() / 2, world.rank(), "pair");
            barrier(world.rank() == 0 ? pair : world, {});
        };
        all = told(ranks, in_another_group, deadline);
        CHECK(contains(all.outcomes[0].text, "rank 1 has not entered barrier at "));
        CHECK(contains(all.outcomes[1].text, "rank 0 has not entered barrier at "));
    }
}

TEST_CASE("threads: files tell of calls that differ, and of a rank that has returned or failed") {
    for (const std::size_t ranks : sizes) {
        Told all = told(ranks, [&](const Comm& world) {
            std::vector<float> values(2 * ranks);
            barrier(world, {});
            all_gather_in_place(world, std::span(values).first(world.rank() == 1 ? 2 * ranks : ranks), {});
        });
        CHECK(all.records == ranks);
        CHECK(contains(all.files.text, ranks == 2 ? "the ranks differ in the order of calls over world"
                                                  : "rank 1 left the order of calls over world"));
        CHECK(contains(all.files.text, "rank 1 called all_gather of 2 fp32 at "));
        for (const bool throws : {false, true}) {
            all = told(ranks, [&](const Comm& world) {
                barrier(world, {});
                if (world.rank() == 1 && throws) { throw std::runtime_error("out of data"); }
                if (world.rank() != 1) { barrier(world, {}); }
            });
            CHECK(all.records == ranks);
            CAPTURE(all.files.text);
            CHECK(all.files.ranks == std::vector<std::size_t>{1});
            CHECK(contains(all.files.text, "rank 1 has not entered barrier at "));
            CHECK(contains(all.files.text, throws ? "rank 1 has ended: rank 1 failed: out of data"
                                                  : "rank 1 has ended: rank 1 returned before rank "));
        }
    }
}

TEST_CASE("threads: records are written on SIGUSR1 and on request, while all goes well") {
    const temporary_folder::Folder folder;
    threads::LaunchOptions options;
    options.record = folder.file("run");
    const auto wait_for_files = [&] {
        const auto begin = std::chrono::steady_clock::now();
        while (!std::ifstream(recorder::record_file(options.record, 1)) &&
               std::chrono::steady_clock::now() - begin < 20s) {
            std::this_thread::sleep_for(1ms);
        }
    };
    std::uint64_t run = 0;
    for (const bool by_signal : {true, false}) {
        threads::launch(
            2,
            [&](const Comm& world) {
                // When rank 0 has left the second one, rank 1 has left the first.
                barrier(world, {});
                barrier(world, {});
                if (world.rank() == 0) {
                    by_signal ? static_cast<void>(std::raise(SIGUSR1)) : recorder::request_records();
                    wait_for_files();
                }
                barrier(world, {});
            },
            options);
        const recorder::RankRecord read = flight_records::read_record(recorder::record_file(options.record, 1));
        CHECK(read.why == "asked for");
        CHECK(read.ended == false);
        REQUIRE(!read.calls.empty());
        CHECK(read.calls[0].done != 0);
        CHECK(read.run != run);  // the file of the first launch is gone when the second one begins
        run = read.run;
    }
    for (int launch = 0; launch < 20; ++launch) {  // asked for before anything else
        threads::launch(
            2,
            [&](const Comm& world) {
                if (world.rank() == 0) {
                    recorder::request_records();
                    wait_for_files();
                }
                barrier(world, {});
            },
            options);
        const recorder::RankRecord read = flight_records::read_record(recorder::record_file(options.record, 1));
        CHECK(read.why == "asked for");
        CHECK(read.run != run);
        run = read.run;
    }
}

TEST_CASE("threads: deadlines hold for streams, where calls wait behind others") {
    for (const std::size_t ranks : {2U, 4U}) {
        std::atomic<bool> over{false};
        std::vector<std::string> texts(ranks);
        threads::LaunchOptions options;
        options.timeout = 200ms;
        options.overlap = threads::Overlap::threads;
        options.on_late = [&](const std::string& text) { over = contains(text, "not every rank"); };
        const auto errors = launch_and_collect(
            ranks,
            [&](const Comm& world) {
                const auto stream = world.communication_stream();
                barrier(world, stream);
                if (world.rank() == 1) {
                    while (!over) { std::this_thread::sleep_for(1ms); }
                    return;
                }
                barrier(world, stream);
                stream.synchronize();
            },
            options);
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            if (rank == 1) { continue; }
            CHECK(contains(outcome(errors[rank]).text, "rank 1 has not entered barrier at "));
        }
    }
    const auto behind = [](const Comm& world) {
        const auto stream = world.communication_stream();
        float value = 0;
        if (world.rank() == 1) { receive(world, std::span<float>(&value, 1), 0, stream); }
        barrier(world, stream);
        stream.synchronize();
    };
    for (const std::exception_ptr& error : launch_and_collect(2, behind, {.overlap = threads::Overlap::threads})) {
        CHECK(contains(outcome(error).text, "rank 1 has not entered barrier at "));
        CHECK(contains(outcome(error).text, "rank 0 has not answered receive of 1 fp32 at "));
    }
}

TEST_CASE("threads: a Deadline replaces the time that ranks wait, while it lives") {
    phase_checks::check_deadlines([](std::chrono::milliseconds timeout, const auto& f) {
        try {
            threads::run(DeviceMesh<3>{}, f, {},
                         {.overlap = threads::Overlap::threads, .timeout = timeout, .finish_timeout = timeout});
        } catch (const std::exception& error) { return std::string(error.what()); }
        return std::string();
    });
}

}  // namespace threads_late_test
