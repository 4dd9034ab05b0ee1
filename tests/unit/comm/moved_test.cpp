// SPDX-License-Identifier: Apache-2.0
// What calls move between a rank and its peers, and how much of it between hosts, in literals.
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

#include <shardkit/comm/all_gather.hpp>
#include <shardkit/comm/all_reduce.hpp>
#include <shardkit/comm/all_to_all.hpp>
#include <shardkit/comm/barrier.hpp>
#include <shardkit/comm/broadcast.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/moved.hpp>
#include <shardkit/comm/reduce_scatter.hpp>
#include <shardkit/comm/send_receive.hpp>
#include <shardkit/comm/split.hpp>

namespace moved_test {

namespace {

using namespace shardkit;

/// That of all ranks of groups; the i-th rank of a group is on the host that its list says.
constexpr detail::HostSpread spread_of(std::uint64_t ranks,
                                       std::initializer_list<std::initializer_list<int>> groups) {
    detail::HostSpread spread{.ranks = ranks};
    for (const auto& hosts : groups) {
        spread.add_group(hosts.size(), [&](std::uint64_t i) { return hosts.begin()[i]; });
    }
    return spread;
}

// Each of 4 ranks has 2 on another host; its part goes there twice, or once; a ring leaves each of 2 hosts once.
constexpr detail::HostSpread two_by_two = spread_of(4, {{0, 0, 1, 1}});
static_assert(two_by_two == detail::HostSpread{4, 8, 4, 2});
// Hosts of 3, 2 and 1 ranks: 3 + 3 + 3 + 4 + 4 + 5 strangers, 6 parts go to 2 hosts each.
static_assert(spread_of(6, {{0, 0, 0, 1, 1, 2}}) == detail::HostSpread{6, 22, 12, 3});
// Two groups, of which one is of a host.
static_assert(spread_of(4, {{0, 0}, {1, 2}}) == detail::HostSpread{4, 2, 2, 2});
static_assert(spread_of(4, {{0, 0, 0, 0}}) == detail::HostSpread{4, 0, 0, 0});
static_assert(spread_of(1, {{0}}) == detail::HostSpread{1, 0, 0, 0});

constexpr engine::Traits to_hosts{.gathered_all_reduce_addends = 100,
                                  .gathers = engine::Crossing::to_hosts,
                                  .sums = engine::Crossing::to_hosts,
                                  .small_gather = 100};
constexpr engine::Traits ring{.gathers = engine::Crossing::ring, .sums = engine::Crossing::ring};

// Of 4 times 1000 bytes a rank receives 3000: from another host 2000, or, as its neighbour reads its half of them,
// 1000; on a ring 2 of 4 ranks all of them.
static_assert(detail::gather_moved(4000, 4, {}, two_by_two) == engine::Moved(3000, 2000));
static_assert(detail::gather_moved(4000, 4, to_hosts, two_by_two) == engine::Moved(3000, 1000));
static_assert(detail::gather_moved(4000, 4, ring, two_by_two) == engine::Moved(3000, 1500));
static_assert(detail::gather_moved(4000, 4) == engine::Moved(3000));
// What travels with the call goes to every rank.
static_assert(detail::gather_moved(400, 4, to_hosts, two_by_two) == engine::Moved(300, 200));
static_assert(detail::gather_moved(404, 4, to_hosts, two_by_two) == engine::Moved(303, 101));
// Addends go to the rank that adds them.
static_assert(detail::scatter_moved(4000, 4, {}, two_by_two) == engine::Moved(3000, 2000));
static_assert(detail::scatter_moved(4000, 4, to_hosts, two_by_two) == engine::Moved(3000, 2000));
static_assert(detail::scatter_moved(4000, 4, ring, two_by_two) == engine::Moved(3000, 1500));
// Addends of 16 bits, sums of 32.
static_assert(detail::all_reduce_moved(4000, 8000, 4, {}, two_by_two) == engine::Moved(9000, 2000 + 4000));
static_assert(detail::all_reduce_moved(4000, 8000, 4, to_hosts, two_by_two) == engine::Moved(9000, 2000 + 2000));
static_assert(detail::all_reduce_moved(4000, 8000, 4, ring, two_by_two) == engine::Moved(9000, 1500 + 3000));
static_assert(detail::all_reduce_moved(100, 100, 4, to_hosts, two_by_two) == engine::Moved(300, 200));
// Sums of MPI's own beside gathers of the engine's.
static_assert(detail::all_reduce_moved(4000, 4000, 4, {.gathers = engine::Crossing::to_hosts}, two_by_two) ==
              engine::Moved(6000, 4000));
// Past 2^32, and of hosts of different sizes the mean over the ranks: 1000 ranks, 999 of them on one host.
static_assert(detail::part_of(std::uint64_t{1} << 50U, std::uint64_t{1} << 20U, std::uint64_t{1} << 24U) ==
              std::uint64_t{1} << 46U);
static_assert(detail::gather_moved(6'000'000'000'000, 6, {}, spread_of(6, {{0, 0, 0, 1, 1, 2}})) ==
              engine::Moved(5'000'000'000'000, 3'666'666'666'666));

/// One of ranks that are not there, of which the hosts are known; moves nothing, and leaves the counting to the
/// verbs.
class Placed {
  public:
    using Stream = InlineStream;
    using Where = SourceLocation;

    Placed(engine::Journal& journal, std::size_t rank, std::vector<std::size_t> hosts)
        : label_(&journal.label("dp")), rank_(rank), hosts_(std::move(hosts)) {}

    std::size_t rank() const { return rank_; }
    std::size_t size() const { return hosts_.size(); }
    std::string_view axes() const { return label_->axes; }
    const engine::CommunicatorLabel& label() const { return *label_; }
    std::size_t host_of(std::size_t rank) const { return hosts_[rank]; }
    Placed named(std::string_view) const { return *this; }
    Placed split(std::size_t, std::size_t, std::string_view, Where) const { return *this; }
    void barrier(Stream, Where) const {}
    template <Element T>
    void all_gather(std::span<const T>, std::span<T>, Stream, Where) const {}
    template <Element T>
    void broadcast(std::span<T>, std::size_t, Stream, Where) const {}
    template <Element T>
    void all_to_all(std::span<const T>, std::span<T>, Stream, Where) const {}
    template <Element T>
    void all_to_all_uneven(std::span<const T>, std::span<const std::size_t>, std::span<T>,
                           std::span<const std::size_t>, Stream, Where) const {}
    template <Element T>
    void send(std::span<const T>, std::size_t, Stream, Where) const {}
    template <Element T>
    void receive(std::span<T>, std::size_t, Stream, Where) const {}
    template <Element T>
    void send_receive(std::span<const T>, std::size_t, std::span<T>, std::size_t, Stream, Where) const {}
    template <Element In, Element Out>
    engine::Moved all_reduce(ReduceOp, std::span<const In>, std::span<Out>, Stream, Where) const {
        return {1234, 567};
    }

  private:
    const engine::CommunicatorLabel* label_;
    std::size_t rank_;
    std::vector<std::size_t> hosts_;
};
static_assert(engine::KnowsHosts<Placed> && engine::KeepsJournal<Placed> && Communicator<Placed>);

}  // namespace

TEST_CASE("verbs count what crosses between hosts where the engine knows them, or what it says itself") {
    engine::Journal journal;
    // Rank 1 of 5: beside it only rank 3.
    const Placed comm(journal, 1, {7, 8, 7, 8, 9});
    std::array<float, 50> values{};
    std::array<float, 50> others{};
    const std::span<float> all(values);
    const std::span<const float> input(others);
    const auto expect = [&](Verb verb, std::uint64_t calls, std::uint64_t bytes, std::uint64_t between_hosts) {
        const TrafficLog::Entry entry = journal.traffic().total(verb);
        CAPTURE(name(verb));
        CHECK(entry.calls == calls);
        CHECK(entry.moved.value == bytes);
        CHECK(entry.between_hosts.value == between_hosts);
        journal.traffic().clear();
        CHECK(journal.traffic().total(verb).between_hosts.value == 0);
    };
    all_gather(comm, input.first(10), all, {});
    all_gather_in_place(comm, all, {});
    expect(Verb::all_gather, 2, 2 * 160, 2 * 120);
    all_to_all(comm, input, all, {});
    expect(Verb::all_to_all, 1, 160, 120);
    const std::vector<std::size_t> sends{0, 3, 0, 0, 47};
    const std::vector<std::size_t> receives{20, 3, 0, 20, 7};
    all_to_all_uneven(comm, input, sends, all, receives, {});
    expect(Verb::all_to_all_uneven, 1, 47 * 4, 27 * 4);
    for (std::size_t root = 0; root < 5; ++root) { broadcast(comm, all, root, {}); }
    expect(Verb::broadcast, 5, 4 * 200, 3 * 200);
    for (std::size_t peer = 0; peer < 5; ++peer) { send(comm, input, peer, {}); }
    expect(Verb::send, 5, 4 * 200, 3 * 200);
    receive(comm, all, 3, {});
    receive(comm, all, 4, {});
    expect(Verb::receive, 2, 400, 200);
    send_receive(comm, input.first(5), 0, all, 3, {});
    CHECK(journal.traffic().total(Verb::receive).between_hosts.value == 0);
    expect(Verb::send, 1, 20, 20);
    static_cast<void>(split(comm, 0, 0, "half"));
    expect(Verb::split, 1, 4 * 16, 3 * 16);
    all_reduce(comm, ReduceOp::sum, input, all, {});
    all_reduce_in_place(comm, ReduceOp::sum, all, {});
    expect(Verb::all_reduce, 2, 2 * 1234, 2 * 567);
    barrier(comm, {});
    expect(Verb::barrier, 1, 0, 0);
}

TEST_CASE("ranks per host are known where hosts follow each other in the order of the ranks, and only there") {
    engine::Journal journal;
    const auto of = [&](const std::vector<std::size_t>& hosts) { return ranks_per_host(Placed(journal, 0, hosts)); };
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

}  // namespace moved_test
