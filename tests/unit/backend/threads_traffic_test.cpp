// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/launch.hpp>
#include <shardkit/verbs/split.hpp>

#include "rank_checks.hpp"
#include "verb_checks.hpp"

namespace threads_traffic_test {

namespace {

using namespace shardkit;
using rank_checks::expect;
using Comm = shardkit::Communicator;

void expect_row(const TrafficLog::Entry& row, Verb verb, const char* axes, std::uint64_t calls, std::uint64_t payload,
                std::uint64_t moved) {
    expect(row.verb == verb && row.axes == axes, "row ", name(verb), " over ", axes, ", got ", name(row.verb),
           " over ", row.axes);
    expect(row.calls == calls, calls, " calls of ", name(verb), ", got ", row.calls);
    expect(row.payload.value == payload, payload, " bytes of payload of ", name(verb), ", got ", row.payload.value);
    expect(row.moved.value == moved, moved, " bytes moved by ", name(verb), ", got ", row.moved.value);
}

}  // namespace

TEST_CASE("logs of other communicators are added by axes and verb") {
    TrafficLog all;
    all.record(all.add_communicator("dp"), Verb::all_gather, ByteCount(8), ByteCount(6));
    TrafficLog other;
    other.record(other.add_communicator("tp"), Verb::all_reduce, ByteCount(5), ByteCount(4));
    other.record(other.add_communicator("dp"), Verb::all_gather, ByteCount(80), ByteCount(60));
    all += other;
    all += all;
    const auto rows = all.entries();
    expect(rows.size() == 2, "2 rows, got ", rows.size());
    expect_row(rows[0], Verb::all_gather, "dp", 4, 176, 132);
    expect_row(rows[1], Verb::all_reduce, "tp", 2, 10, 8);
}

TEST_CASE("threads: the log counts what four ranks move, against literals") {
    threads::launch(4, [](const Comm& world) {
        std::vector<float> shard(250);
        std::vector<float> full(1000);
        std::vector<float> exchanged(1000);
        std::vector<bf16> half(1024);
        std::vector<float> wide(1024);
        const std::span<float> out(full);
        const std::span<const float> in(full);
        all_gather(world, std::span<const float>(shard), out, {});
        all_gather_in_place(world, out, {});
        reduce_scatter(world, ReduceOp::sum, in, std::span<float>(shard), {});
        all_reduce(world, ReduceOp::sum, std::span<const bf16>(half), std::span<float>(wide), {});
        broadcast(world, out, 1, {});
        all_to_all(world, in, std::span<float>(exchanged), {});
        send_receive(world, in.first(10), (world.rank() + 1) % 4, out.last(10), (world.rank() + 3) % 4, {});
        send_receive(world, in.first(10), world.rank(), out.last(10), world.rank(), {});
        // From rank q come 10 q elements, and to rank q go 10 of each rank's number.
        const std::vector<std::size_t> sends(4, 10 * world.rank());
        const std::vector<std::size_t> receives{0, 10, 20, 30};
        all_to_all_uneven(world, in.first(40 * world.rank()), sends, std::span(exchanged).first(60), receives, {});
        barrier(world, {});
        const auto rows = world.traffic().entries();
        expect(rows.size() == 9, "9 rows, got ", rows.size());
        expect_row(rows[0], Verb::all_gather, "world", 2, 8000, 6000);
        expect_row(rows[1], Verb::reduce_scatter, "world", 1, 4000, 3000);
        // 256 elements per rank: read from 3 peers at 2 bytes, written to 3 peers at 4.
        expect_row(rows[2], Verb::all_reduce, "world", 1, 2048, 4608);
        expect_row(rows[3], Verb::broadcast, "world", 1, 4000, world.rank() == 1 ? 0 : 4000);
        expect_row(rows[4], Verb::all_to_all, "world", 1, 4000, 3000);
        expect_row(rows[5], Verb::all_to_all_uneven, "world", 1, 240, 240 - 40 * world.rank());
        expect_row(rows[6], Verb::send, "world", 2, 80, 40);
        expect_row(rows[7], Verb::receive, "world", 2, 80, 40);
        expect_row(rows[8], Verb::barrier, "world", 1, 0, 0);
    });
}

TEST_CASE("threads: an all_reduce moves 2 (n - 1) times its bytes over all ranks, up to 576 bytes n (n - 1) times") {
    constexpr std::size_t rank_counts[] = {2, 3, 5, 8};
    constexpr std::size_t counts[] = {0, 1, 31, 33, 144, 145, 200, 1000, 12345};
    for (const std::size_t ranks : rank_counts) {
        for (const std::size_t count : counts) {
            std::vector<std::uint64_t> moved(ranks);
            threads::launch(ranks, [&](const Comm& world) {
                std::vector<float> values(count);
                all_reduce_in_place(world, ReduceOp::sum, std::span<float>(values), {});
                moved[world.rank()] = world.traffic().total(Verb::all_reduce).moved.value;
            });
            std::uint64_t sum = 0;
            for (const std::uint64_t bytes : moved) { sum += bytes; }
            CHECK(sum == (count <= 144 ? ranks : 2) * (ranks - 1) * count * 4);
        }
    }
}

TEST_CASE("threads: axes have rows of their own, groups of one rank have none, refused calls are not counted") {
    threads::launch(4, [](const Comm& world) {
        const Comm dp = split(world, world.rank() % 2, 0, "dp");
        const Comm alone = split(world, world.rank(), 0, "alone");
        const Comm tp = world.named("tp");
        world.traffic().clear();
        std::vector<float> values(64);
        const std::span<float> all(values);
        all_reduce_in_place(dp, ReduceOp::sum, all, {});
        all_reduce_in_place(alone, ReduceOp::sum, all, {});
        all_gather_in_place(tp, all, {});
        all_gather_in_place(world, all, {});
        all_gather_in_place(world, all, {});
        try {
            all_gather_in_place(world, world.rank() == 0 ? all.first(4) : all, {});
            expect(false, "an error");
        } catch (const CommError&) {}
        const auto rows = world.traffic().entries();
        expect(rows.size() == 3, "3 rows, got ", rows.size());
        expect_row(rows[0], Verb::all_gather, "world", 2, 512, 384);
        expect_row(rows[1], Verb::all_reduce, "dp", 1, 256, 256);
        expect_row(rows[2], Verb::all_gather, "tp", 1, 256, 192);
        expect(&dp.traffic() == &world.traffic(), "one log per rank");
    });
}

TEST_CASE("threads: a split of four ranks costs 16 bytes from each peer") {
    threads::launch(4, [](const Comm& world) {
        split(world, 0, 0, "x");
        expect_row(world.traffic().entries().at(0), Verb::split, "world", 1, 64, 48);
    });
}

}  // namespace threads_traffic_test
