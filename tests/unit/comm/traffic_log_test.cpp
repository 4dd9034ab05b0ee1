// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <string>

#include <doctest/doctest.h>

#include <shardkit/comm/traffic_log.hpp>

namespace traffic_log_test {

namespace {

using namespace shardkit;

void check_entry(const TrafficLog::Entry& entry, Verb verb, const std::string& axes, std::uint64_t calls,
                 std::uint64_t payload, std::uint64_t moved) {
    CHECK(entry.verb == verb);
    CHECK(entry.axes == axes);
    CHECK(entry.calls == calls);
    CHECK(entry.payload == ByteCount(payload));
    CHECK(entry.moved == ByteCount(moved));
}

}  // namespace

TEST_CASE("TrafficLog: rows by axes and verb, in order of appearance; unused rows are left out") {
    TrafficLog log;
    CHECK(log.entries().empty());
    const std::size_t dp = log.add_communicator("dp");
    const std::size_t tp = log.add_communicator("tp");
    CHECK(log.entries().empty());
    log.record(tp, Verb::all_reduce, ByteCount(100), ByteCount(50));
    log.record(dp, Verb::reduce_scatter, ByteCount(8), ByteCount(6));
    log.record(dp, Verb::all_gather, ByteCount(30), ByteCount(20));
    log.record(dp, Verb::all_gather, ByteCount(3), ByteCount(2));
    const auto entries = log.entries();
    REQUIRE(entries.size() == 3);
    check_entry(entries[0], Verb::all_gather, "dp", 2, 33, 22);
    check_entry(entries[1], Verb::reduce_scatter, "dp", 1, 8, 6);
    check_entry(entries[2], Verb::all_reduce, "tp", 1, 100, 50);
}

TEST_CASE("TrafficLog: communicators with the same axes share rows") {
    TrafficLog log;
    const std::size_t first = log.add_communicator("dp");
    log.add_communicator("cp");
    CHECK(log.add_communicator("dp") == first);
    log.record(first, Verb::barrier, {}, {});
    log.record(log.add_communicator("dp"), Verb::barrier, {}, {});
    REQUIRE(log.entries().size() == 1);
    check_entry(log.entries()[0], Verb::barrier, "dp", 2, 0, 0);
}

TEST_CASE("TrafficLog: totals over all axes; clear keeps the rows") {
    TrafficLog log;
    const std::size_t dp = log.add_communicator("dp");
    const std::size_t tp = log.add_communicator("tp");
    log.record(dp, Verb::all_gather, ByteCount(10), ByteCount(1));
    log.record(tp, Verb::all_gather, ByteCount(5'000'000'000), ByteCount(4'000'000'000));
    log.record(tp, Verb::split, ByteCount(7), ByteCount(7));
    check_entry(log.total(Verb::all_gather), Verb::all_gather, "all", 2, 5'000'000'010, 4'000'000'001);
    check_entry(log.total(Verb::broadcast), Verb::broadcast, "all", 0, 0, 0);
    log.clear();
    CHECK(log.entries().empty());
    check_entry(log.total(Verb::all_gather), Verb::all_gather, "all", 0, 0, 0);
    log.record(tp, Verb::send, ByteCount(2), ByteCount(2));
    REQUIRE(log.entries().size() == 1);
    check_entry(log.entries()[0], Verb::send, "tp", 1, 2, 2);
}

}  // namespace traffic_log_test
