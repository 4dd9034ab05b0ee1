// SPDX-License-Identifier: Apache-2.0
// What calls move between a rank and its peers, in literals; and how ranks lie on hosts.
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/ranks_per_host.hpp>
#include <shardkit/verbs/all_gather.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verbs/all_to_all.hpp>
#include <shardkit/verbs/barrier.hpp>
#include <shardkit/verbs/broadcast.hpp>
#include <shardkit/verbs/reduce_scatter.hpp>
#include <shardkit/verbs/send_receive.hpp>
#include <shardkit/verbs/split.hpp>

#include "recording_verbs.hpp"

namespace verb_bytes_test {

namespace {

using namespace shardkit;

/// Ranks that lie on hosts.
struct OnHosts {
    std::vector<std::size_t> hosts;
    std::size_t size() const { return hosts.size(); }
    std::size_t host_of(std::size_t rank) const { return hosts[rank]; }
};

}  // namespace

TEST_CASE("verbs count what moves between a rank and its peers, or what the engine says itself") {
    comm_test::Recording ranks;
    const Communicator comm = ranks.of(1, 5);
    engine::Journal& journal = ranks.journal;
    constexpr std::uint64_t said = comm_test::RecordingVerbs::moved;
    std::array<float, 50> values{};
    std::array<float, 50> others{};
    const std::span<float> all(values);
    const std::span<const float> input(others);
    const auto expect = [&](Verb verb, std::uint64_t calls, std::uint64_t bytes) {
        const TrafficLog::Entry entry = journal.traffic().total(verb);
        CAPTURE(name(verb));
        CHECK(entry.calls == calls);
        CHECK(entry.moved.value == bytes);
        journal.traffic().clear();
        CHECK(journal.traffic().total(verb).moved.value == 0);
    };
    all_gather(comm, input.first(10), all, {});
    all_gather_in_place(comm, all, {});
    expect(Verb::all_gather, 2, 2 * said);
    all_to_all(comm, input, all, {});
    expect(Verb::all_to_all, 1, said);
    const std::vector<std::size_t> sends{0, 3, 0, 0, 47};
    const std::vector<std::size_t> receives{20, 3, 0, 20, 7};
    all_to_all_uneven(comm, input, sends, all, receives, {});
    expect(Verb::all_to_all_uneven, 1, 47 * 4);
    for (std::size_t root = 0; root < 5; ++root) { broadcast(comm, all, root, {}); }
    expect(Verb::broadcast, 5, 5 * said);
    for (std::size_t peer = 0; peer < 5; ++peer) { send(comm, input, peer, {}); }
    expect(Verb::send, 5, 4 * 200);
    receive(comm, all, 3, {});
    receive(comm, all, 4, {});
    expect(Verb::receive, 2, 400);
    send_receive(comm, input.first(5), 0, all, 3, {});
    CHECK(journal.traffic().total(Verb::receive).moved.value == 200);
    expect(Verb::send, 1, 20);
    static_cast<void>(split(comm, 0, 0, "half"));
    expect(Verb::split, 1, 4 * 16);
    all_reduce(comm, ReduceOp::sum, input, all, {});
    all_reduce_in_place(comm, ReduceOp::sum, all, {});
    expect(Verb::all_reduce, 2, 2 * said);
    barrier(comm, {});
    expect(Verb::barrier, 1, 0);
}

TEST_CASE("ranks per host are known where hosts follow each other in the order of the ranks, and only there") {
    const auto of = [](const std::vector<std::size_t>& hosts) { return ranks_per_host(OnHosts{hosts}); };
    CHECK(of({4, 4, 5, 5}) == 2);
    CHECK(of({4, 4, 5, 5, 1}) == 2);
    CHECK(of({9, 8, 7}) == 1);
    CHECK(of({4, 4, 4}) == 0);
    CHECK(of({4}) == 0);
    CHECK(of({0, 1, 0, 1}) == 0);
    CHECK(of({0, 0, 1}) == 2);
    CHECK(of({0, 1, 1}) == 0);
    CHECK(of({0, 0, 1, 1, 1}) == 0);
    CHECK(of({0, 0, 1, 1, 0}) == 0);
}

}  // namespace verb_bytes_test
