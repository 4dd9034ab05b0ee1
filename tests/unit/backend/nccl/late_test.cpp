// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/recorder/record_files.hpp>
#include <shardkit/verbs/all_gather.hpp>
#include <shardkit/verbs/barrier.hpp>
#include <shardkit/verbs/split.hpp>

#include "../../../../examples/who_is_missing/read_record.hpp"
#include "../../../../examples/who_is_missing/stragglers.hpp"
#include "../../../../examples/who_is_missing/who_is_missing.hpp"
#include "../phase_checks.hpp"
#include "gpu_ranks.hpp"
#include "temporary_folder.hpp"

namespace late_test {

namespace {

using namespace shardkit;
using gpu_ranks::Comm;
using rank_checks::contains;
using rank_checks::Kind;

/// Runs f(comm, over) on ranks that write files; `over` is set once one of them has its error and NCCL has ended what
/// that rank had given it: until then, a rank that comes late still finds all the others there. Returns each outcome,
/// and what the files say.
template <class F>
std::pair<std::vector<rank_checks::Outcome>, flight_records::MissingRanks> recorded(std::size_t ranks, const F& f) {
    gpu_ranks::restart();
    const temporary_folder::Folder folder;
    nccl::Options options = gpu_ranks::impatient();
    options.record = folder.file("run");
    std::mutex mutex;
    std::vector<std::string> warned;
    options.on_late = [&](const std::string& text) {
        const std::lock_guard lock(mutex);
        warned.push_back(text);
    };
    std::atomic<bool> over{false};
    const nccl::UniqueId id = nccl::UniqueId::create();
    auto outcomes = gpu_ranks::each_in_a_thread(ranks, [&](std::size_t rank) {
        try {
            nccl::World world(id, ranks, rank, options);
            f(Comm(world), over);
            world.finish();
        } catch (...) {
            over = true;
            throw;
        }
    });
    CHECK(!warned.empty());
    for (const std::string& text : warned) { CHECK(contains(text, "late: ")); }
    std::vector<recorder::RankRecord> records;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        records.push_back(flight_records::read_record(recorder::record_file(options.record, rank)));
    }
    for (const recorder::RankRecord& record : records) {
        CHECK(record.run != 0);
        CHECK(record.run == records[0].run);
    }
    return {std::move(outcomes), flight_records::who_is_missing(records)};
}

}  // namespace

TEST_CASE("nccl: a rank that computes for too long is named in the files, which the errors of all others name") {
    for (const std::size_t ranks : {2U, 5U}) {
        const auto told = recorded(ranks, [&](const Comm& world, const std::atomic<bool>& over) {
            const auto stream = verb_values::Bench<Comm>::stream(world);
            auto values = world.buffer<float>(4 * ranks);
            barrier(world, stream);
            stream.synchronize();
            if (world.rank() == 1) {
                while (!over) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }
            }
            all_gather_in_place(world, values.span(), stream);
            stream.synchronize();
        });
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            CAPTURE(rank);
            CAPTURE(told.first[rank].text);
            CHECK(told.first[rank].kind == Kind::comm);
            if (rank == 1) { continue; }
            CHECK(contains(told.first[rank].text, "; the ranks' last calls are in "));
        }
        CAPTURE(told.second.text);
        CHECK(told.second.ranks == std::vector<std::size_t>{1});
        CHECK(contains(told.second.text, "rank 1 has not entered all_gather of 4 fp32 at "));
        CHECK(contains(told.second.text, "its last one was barrier at "));
    }
}

TEST_CASE("nccl: ranks that use two groups in different orders are told which each waits in") {
    const auto told = recorded(2, [&](const Comm& world, const std::atomic<bool>&) {
        const auto stream = verb_values::Bench<Comm>::stream(world);
        const Comm tp = split(world, 0, world.rank(), "tp");
        const Comm dp = split(world, 0, world.rank(), "dp");
        barrier(world.rank() == 0 ? tp : dp, stream);
        stream.synchronize();
    });
    for (const auto& seen : told.first) {
        CAPTURE(seen.text);
        CHECK(seen.kind == Kind::comm);
    }
    CAPTURE(told.second.text);
    CHECK(contains(told.second.text, "no rank can go on: each waits for another one"));
    CHECK(contains(told.second.text, "rank 0 waits in barrier at "));
    CHECK(contains(told.second.text, "(call 0 over dp)"));
}

TEST_CASE(
    "nccl: a rank that comes late to a World or a split is waited for as long as the timeout, and to the end not") {
    for (const std::string_view to : {"World", "split", "finish"}) {
        CAPTURE(to);
        gpu_ranks::restart();
        const nccl::UniqueId id = nccl::UniqueId::create();
        std::atomic<bool> over{false};
        const auto outcomes = gpu_ranks::each_in_a_thread(2, [&](std::size_t rank) {
            const auto reach = [&](std::string_view place) {
                while (place == to && rank == 1 && !over) {
                    std::this_thread::sleep_for(std::chrono::milliseconds(1));
                }
            };
            try {
                reach("World");
                nccl::World world(id, 2, rank, gpu_ranks::impatient());
                const Comm comm(world);
                reach("split");
                const Comm group = split(comm, 0, rank, "group");
                reach("finish");
                world.finish();
                over = true;
            } catch (...) {
                over = true;
                throw;
            }
        });
        CAPTURE(outcomes[0].text);
        CHECK(contains(outcomes[0].text, gpu_ranks::after_short_timeout) == (to != "finish"));
    }
}

TEST_CASE("nccl: a Deadline replaces the time that ranks wait, while it lives") {
    phase_checks::check_deadlines([](std::chrono::milliseconds timeout, const auto& f) {
        gpu_ranks::restart();
        nccl::Options options = gpu_ranks::patient();
        options.timeout = timeout;
        return gpu_ranks::with_world(3, options,
                                     [&](const Comm& comm, nccl::World& world) {
                                         MeshRank<DeviceMesh<3>> rank{DeviceMesh<3>{}, comm, {}, world.streams()};
                                         f(rank);
                                     })[0]
            .text;
    });
}

TEST_CASE("nccl: a rank whose host is slow in each step is named from the files of a run that goes well") {
    constexpr std::size_t ranks = 3;
    gpu_ranks::restart();
    const temporary_folder::Folder folder;
    nccl::Options options = gpu_ranks::patient();
    options.record = folder.file("run");
    std::atomic<std::size_t> written{0};
    gpu_ranks::with_world(ranks, options, [&](const Comm& world, nccl::World&) {
        const auto stream = verb_values::Bench<Comm>::stream(world);
        auto values = world.buffer<float>(4 * ranks);
        for (std::uint32_t step = 1; step <= 6; ++step) {
            world.label().journal.recorder().set_step(step);
            if (world.rank() == 1) { std::this_thread::sleep_for(std::chrono::milliseconds(60)); }
            all_gather_in_place(world, values.span(), stream);
            stream.synchronize();
        }
        const std::string file = recorder::record_file(options.record, world.rank());
        for (int i = 0; i < 2000 && !std::ifstream(file); ++i) {
            if (world.rank() == 0) { recorder::request_records(); }
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        ++written;
        while (written < ranks) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }
    });
    std::vector<recorder::RankRecord> records;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        records.push_back(flight_records::read_record(recorder::record_file(options.record, rank)));
    }
    const flight_records::Stragglers found = flight_records::find_stragglers(records);
    CAPTURE(found.text);
    CHECK(found.ranks == std::vector<std::size_t>{1});
    CHECK(found.steps == 6);
    REQUIRE(!found.waits.empty());
    CHECK(found.waits[0].group == "all_gather over world");
    CHECK(found.waits[0].seconds > 0.006);  // of 0.06; on a busy machine the others are late too
}

}  // namespace late_test
