// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/comm/all_gather.hpp>
#include <shardkit/comm/barrier.hpp>
#include <shardkit/comm/record_files.hpp>
#include <shardkit/comm/split.hpp>
#include <shardkit/comm/who_is_missing.hpp>

#include "gpu_ranks.hpp"
#include "temporary_folder.hpp"

namespace late_test {

namespace {

using namespace shardkit;
using gpu_ranks::Comm;
using rank_checks::contains;
using rank_checks::Kind;

/// Runs f(comm, over) on ranks that write files; `over` is set once one of them has its error. Returns each outcome,
/// and what the files say.
template <class F>
std::pair<std::vector<rank_checks::Outcome>, MissingRanks> recorded(std::size_t ranks, const F& f) {
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
    auto outcomes = gpu_ranks::with_world(ranks, options, [&](const Comm& world, nccl::World&) {
        try {
            f(world, over);
        } catch (...) {
            over = true;
            throw;
        }
    });
    CHECK(!warned.empty());
    for (const std::string& text : warned) { CHECK(contains(text, "late: ")); }
    std::vector<RankRecord> records;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        records.push_back(read_record(record_file(options.record, rank)));
    }
    return {std::move(outcomes), who_is_missing(records)};
}

}  // namespace

TEST_CASE("nccl: a rank that computes for too long is named in the errors of all others, and in the files") {
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
            CHECK(contains(told.first[rank].text, ": rank 1 has not entered all_gather of 4 fp32 at "));
            CHECK(contains(told.first[rank].text, "(call 1 over world)"));
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

}  // namespace late_test
