// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/comm/call.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/recorder/rank_record.hpp>
#include <shardkit/recorder/record_files.hpp>

#include "../../../examples/who_is_missing/read_record.hpp"
#include "../../../examples/who_is_missing/who_is_missing.hpp"
#include "temporary_folder.hpp"

namespace recorder_test {

namespace {

using namespace shardkit;

Call call(Verb verb, std::size_t count, std::uint32_t line = 1) {
    return {{verb, ElementType::fp32, ElementType::fp32, ReduceOp::sum, 0, count, 0}, 4 * count, {"train.cpp", line}};
}

/// Some ranks, of which each makes calls that end or do not.
struct Ranks {
    explicit Ranks(std::size_t size) : journals(size), members(size) {
        for (std::size_t i = 0; i < size; ++i) { members[i] = i; }
    }
    /// Lets a rank make a call, which is over if `ends`.
    void make(std::size_t rank, const Call& made, bool ends = true, const char* axes = "world") {
        engine::Journal& journal = journals[rank];
        journal.begin(journal.label(axes, members), made);
        if (ends) { journal.end(journal.label(axes, members), made, 0); }
    }
    recorder::RankRecord record(std::size_t rank) const {
        return {"test",
                rank,
                journals.size(),
                "",
                false,
                detail::TickClock::since_1970(),
                journals[rank].recorder().recent_calls()};
    }
    flight_records::MissingRanks missing() const {
        std::vector<recorder::RankRecord> records;
        for (std::size_t rank = 0; rank < journals.size(); ++rank) { records.push_back(record(rank)); }
        return flight_records::who_is_missing(records);
    }

    std::vector<engine::Journal> journals;
    std::vector<std::size_t> members;
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("Recorder: times of a call are in order, and those of a queued one are its thread's") {
    engine::Journal journal;
    const std::uint64_t before = detail::TickClock::since_1970();
    const engine::CommunicatorLabel& dp = journal.label("dp", std::array<std::size_t, 2>{3, 5});
    const Call ended = call(Verb::all_gather, 10);
    journal.begin(dp, ended);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    journal.end(dp, ended, 40);
    const Call queued = call(Verb::barrier, 0);
    journal.begin(dp, queued);
    journal.recorder().queue(queued);
    journal.end(dp, queued, 0);
    std::vector<recorder::RecentCall> calls = journal.recorder().recent_calls();
    REQUIRE(calls.size() == 2);
    CHECK(calls[0].payload == 40);
    CHECK(calls[0].sequence == 0);
    CHECK(*calls[0].members == std::vector<std::size_t>{3, 5});
    CHECK(calls[0].given + 1'000'000'000 > before);
    CHECK(calls[0].done > calls[0].begun + 10'000'000);
    CHECK(calls[0].done < calls[0].begun + 10'000'000'000);
    CHECK(calls[1].sequence == 1);
    CHECK(calls[1].given != 0);
    CHECK(calls[1].begun == 0);
    CHECK(calls[1].done == 0);
    CHECK(journal.recorder().waits_longer_than(0));
    CHECK(!journal.recorder().waits_longer_than(60'000'000'000));
    std::thread([&] {
        journal.recorder().begun(queued);
        journal.recorder().done(queued);
    }).join();
    calls = journal.recorder().recent_calls();
    CHECK(calls[1].begun != 0);
    CHECK(calls[1].done != 0);
    CHECK(!journal.recorder().waits_longer_than(0));
}

TEST_CASE("Recorder: a call that fails is over, and a queued one that has left the ring changes no other") {
    engine::Journal journal;
    const engine::CommunicatorLabel& dp = journal.label("dp");
    const Call fails = call(Verb::all_reduce, 3);
    journal.begin(dp, fails);
    journal.recorder().close(fails);
    CHECK(journal.recorder().recent_calls().back().failed);
    CHECK(!journal.recorder().waits_longer_than(0));
    const Call queued = call(Verb::all_gather, 1);
    journal.begin(dp, queued);
    journal.recorder().queue(queued);
    for (std::uint64_t i = 0; i < detail::Recorder::kept; ++i) { journal.begin(dp, call(Verb::barrier, 0)); }
    journal.recorder().done(queued.number);
    for (const recorder::RecentCall& each : journal.recorder().recent_calls()) { CHECK(each.done == 0); }
}

TEST_CASE("Recorder: a send that is made with a receive says so, and neighbours on its line are not touched") {
    engine::Journal journal;
    const engine::CommunicatorLabel& dp = journal.label("dp");
    for (const std::uint32_t entries : {1U, 2U}) {
        const Call receives = call(Verb::receive, 1);
        Call sends = call(Verb::send, 1);
        sends.entries = entries;
        journal.begin(dp, receives);
        journal.begin(dp, sends);
        const auto open = [&](std::size_t behind) {
            const recorder::RecentCall last =
                *(journal.recorder().recent_calls().end() - static_cast<std::ptrdiff_t>(behind));
            return (last.begun == 0 ? 1 : 0) + (last.done == 0 ? 2 : 0);
        };
        journal.recorder().queue(sends);
        CHECK(open(1) == 3);
        CHECK(open(2) == (entries == 2 ? 3 : 2));
        journal.recorder().begun(sends);
        CHECK(open(1) == 2);
        CHECK(open(2) == 2);
        journal.recorder().done(sends);
        CHECK(open(1) == 0);
        CHECK(open(2) == (entries == 2 ? 0 : 2));
        const Call on_device = call(Verb::barrier, 0);
        journal.begin(dp, on_device);
        journal.recorder().leave_open(on_device);
        journal.end(dp, on_device, 0);
        CHECK(open(1) == 2);
        journal.recorder().done(on_device.number);
        CHECK(open(1) == 0);
    }
}

TEST_CASE("Recorder: calls belong to the step that was said before them") {
    engine::Journal journal;
    const engine::CommunicatorLabel& dp = journal.label("dp");
    journal.begin(dp, call(Verb::barrier, 0, 4'000'000'000));
    journal.recorder().set_step(4'294'967'295);
    journal.begin(dp, call(Verb::barrier, 0, 4'000'000'001));
    const std::vector<recorder::RecentCall> calls = journal.recorder().recent_calls();
    CHECK(calls[0].step == 0);
    CHECK(calls[0].where.line == 4'000'000'000);
    CHECK(calls[1].step == 4'294'967'295);
    CHECK(calls[1].where.line == 4'000'000'001);
}

TEST_CASE("RecordWriter: files of another run in the same second are passed over") {
    const temporary_folder::Folder folder;
    const std::string prefix = folder.file("run");
    Ranks ranks(2);
    ranks.make(0, call(Verb::barrier, 0), false);
    const auto left_by = [&](std::uint64_t run) {
        recorder::RankRecord record = ranks.record(1);
        record.run = run;
        recorder::write_record(prefix, record);
        std::ofstream(prefix + "-trouble") << run;
    };
    left_by(8);
    {
        detail::RecordWriter writer("test", prefix, 0, 2, ranks.journals[0]);
        CHECK(!std::ifstream(prefix + "-trouble"));
        writer.set_run(7);
        left_by(8);
        std::this_thread::sleep_for(4 * detail::RecordWriter::interval);
        CHECK(!std::ifstream(recorder::record_file(prefix, 0)));  // it has no trouble
        CHECK(has(writer.tell_and_wait("late"), "; the ranks' last calls are in "));
        CHECK(flight_records::read_record(recorder::record_file(prefix, 0)).run == 7);
        std::string mark;
        std::ifstream(prefix + "-trouble") >> mark;
        CHECK(mark == "7");
    }
    detail::RecordWriter writer("test", prefix, 0, 2, ranks.journals[0]);
    writer.set_run(7);
    left_by(7);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!std::ifstream(recorder::record_file(prefix, 0)) && std::chrono::steady_clock::now() < until) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    CHECK(flight_records::read_record(recorder::record_file(prefix, 0)).why ==
          "another rank of the job has a failure");
}

TEST_CASE("Recorder: another thread reads whole calls while the rank makes them") {
    engine::Journal journal;
    const engine::CommunicatorLabel& dp = journal.label("dp", std::array<std::size_t, 1>{7});
    std::atomic<bool> over{false};
    std::thread rank([&] {
        for (std::size_t i = 0; i < 200'000 || !over; ++i) {
            const Call made = call(Verb::all_gather, i, static_cast<std::uint32_t>(i));
            journal.begin(dp, made);
            journal.end(dp, made, 0);
            if (i % 256 == 0) { std::this_thread::yield(); }
        }
    });
    while (journal.recorder().count() == 0) { std::this_thread::yield(); }
    std::size_t read = 0;
    for (int looks = 0; looks < 200; ++looks) {
        for (const recorder::RecentCall& each : journal.recorder().recent_calls()) {
            const auto count = static_cast<std::uint32_t>(each.signature.count);
            if (each.where.line != count || each.payload != 4 * each.signature.count ||
                each.sequence != each.number || each.number != each.signature.count) {
                FAIL("a torn call");
            }
            ++read;
        }
    }
    // The call that is written over next, while it may be.
    for (int looks = 0; looks < 1'000'000; ++looks) {
        const auto entry = journal.recorder().read(journal.recorder().oldest());
        if (entry && (entry->where.line != static_cast<std::uint32_t>(entry->number) ||
                      entry->payload != 4 * entry->number || entry->sequence != entry->number)) {
            FAIL("a torn call");
        }
    }
    over = true;
    rank.join();
    CHECK(read > 0);
}

TEST_CASE("RankRecord: what is written is read again") {
    const temporary_folder::Folder folder;
    Ranks ranks(2);
    ranks.make(0, call(Verb::all_gather, 10));
    Call sum = call(Verb::all_reduce, std::size_t{1} << 40U);
    const engine::CallSubject& subject = ranks.journals[0].subject("'blocks.\"0\"' gradients");
    sum.subject = &subject;
    sum.signature.subject = subject.hash;
    sum.signature.argument = ~std::uint64_t{0};
    sum.signature.op = ReduceOp::max;
    sum.signature.out = ElementType::bf16;
    ranks.journals[0].recorder().set_step(12);
    ranks.make(0, sum, false, "dp x \xff");
    recorder::RankRecord record = ranks.record(0);
    record.run = ~std::uint64_t{0};
    record.why = "line 1\nline 2";
    const std::string prefix = folder.file("run");
    recorder::write_record(prefix, record);
    const recorder::RankRecord read = flight_records::read_record(recorder::record_file(prefix, 0));
    CHECK(read.engine == "test");
    CHECK(read.ranks == 2);
    CHECK(read.why == record.why);
    CHECK(read.taken == record.taken);
    CHECK(read.run == record.run);
    REQUIRE(read.calls.size() == 2);
    for (std::size_t i = 0; i < 2; ++i) {
        const recorder::RecentCall& a = record.calls[i];
        const recorder::RecentCall& b = read.calls[i];
        CHECK(a.signature == b.signature);
        CHECK(a.given == b.given);
        CHECK(a.done == b.done);
        CHECK(a.payload == b.payload);
        CHECK(a.step == b.step);
        CHECK(b.step == (i == 0 ? 0 : 12));
        CHECK(a.subject == b.subject);
        CHECK(std::string(a.where.file) == b.where.file);
        CHECK(*a.members == *b.members);
    }
    CHECK(read.calls[1].axes == "dp x ?");  // no UTF-8
    CHECK_THROWS_AS(flight_records::read_record(prefix), FileError);
    CHECK_THROWS_AS(recorder::write_record(folder.file("none/run"), record), FileError);
}

TEST_CASE("who_is_missing: a rank that computes, on 2 to 64 ranks") {
    for (const std::size_t size : {2U, 3U, 64U}) {
        Ranks ranks(size);
        for (std::size_t rank = 0; rank < size; ++rank) {
            ranks.make(rank, call(Verb::barrier, 0, 5));
            if (rank != 1) { ranks.make(rank, call(Verb::all_gather, 10, 6), false); }
        }
        const flight_records::MissingRanks found = ranks.missing();
        CAPTURE(found.text);
        CHECK(found.ranks == std::vector<std::size_t>{1});
        CHECK(has(found.text, "rank 1 has not entered all_gather of 10 fp32 at train.cpp:6 (call 1 over world)"));
        CHECK(has(found.text, size == 2   ? "rank 0 waits in "
                              : size == 3 ? "ranks 0, 2 wait in "
                                          : "ranks 0, 2-63 wait in "));
        CHECK(has(found.text, "rank 1 makes no call since "));
        CHECK(has(found.text,
                  "the last call that all have finished there: barrier at train.cpp:5 (call 0 over world)"));
        CHECK(found.entering > 0);
        CHECK(found.finishing == 0);
    }
}

TEST_CASE("who_is_missing: ranks without a record, that wait elsewhere, and that left the order") {
    Ranks ranks(4);
    for (std::size_t rank = 0; rank < 3; ++rank) { ranks.make(rank, call(Verb::barrier, 0), false); }
    flight_records::MissingRanks found =
        flight_records::who_is_missing({ranks.record(0), ranks.record(1), ranks.record(2)});
    CAPTURE(found.text);
    CHECK(found.ranks == std::vector<std::size_t>{3});
    CHECK(has(found.text, "rank 3 has left no record"));

    Ranks ordered(3);
    for (std::size_t rank = 0; rank < 3; ++rank) {
        ordered.make(rank, rank == 2 ? call(Verb::reduce_scatter, 12, 9) : call(Verb::all_gather, 12, 8), false);
    }
    found = ordered.missing();
    CHECK(has(found.text,
              "rank 2 left the order of calls over world\n  rank 2 called reduce_scatter sum of 12 fp32 at "
              "train.cpp:9 (call 0 over world)\n  ranks 0-1 called all_gather of 12 fp32 at train.cpp:8 "
              "(call 0 over world)"));

    Ranks crossed(2);
    crossed.make(0, call(Verb::barrier, 0, 1), false, "tp");
    crossed.make(1, call(Verb::barrier, 0, 2), false, "dp");
    found = crossed.missing();
    CHECK(has(found.text, "no rank can go on: each waits for another one"));
    CHECK(has(found.text, "rank 0 waits in barrier at train.cpp:1 (call 0 over tp)"));
    CHECK(has(found.text, ", for rank 1"));
    CHECK(found.ranks == std::vector<std::size_t>{0, 1});

    Ranks unfinished(2);
    for (std::size_t rank = 0; rank < 2; ++rank) { unfinished.make(rank, call(Verb::barrier, 0), rank == 1); }
    found = unfinished.missing();
    CHECK(has(found.text, "all ranks have entered, and not all have finished"));
    CHECK(found.finishing > 0);
    CHECK(found.entering == 0);
    CHECK(!has(found.text, "the last call that all have finished"));

    Ranks behind(2);
    behind.make(0, call(Verb::barrier, 0), false);
    const Call queued = call(Verb::barrier, 0);
    behind.make(1, queued, false);
    behind.journals[1].recorder().queue(queued);
    found = behind.missing();
    CHECK(found.ranks == std::vector<std::size_t>{1});
    CHECK(has(found.text, "rank 1 has not entered barrier at train.cpp:1 (call 0 over world)"));
}

}  // namespace recorder_test
