// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include <shardkit/backend/self/communicator.hpp>
#include <shardkit/backend/threads/communicator.hpp>
#include <shardkit/comm/all_gather.hpp>
#include <shardkit/comm/all_reduce.hpp>
#include <shardkit/comm/all_to_all.hpp>
#include <shardkit/comm/broadcast.hpp>
#include <shardkit/comm/communicator.hpp>
#include <shardkit/comm/reduce_scatter.hpp>
#include <shardkit/comm/send_receive.hpp>
#include <shardkit/core/element.hpp>

namespace communicator_test {

namespace {

using namespace shardkit;
using Where = SourceLocation;
using Counts = std::span<const std::size_t>;

/// The least that is a communicator; Self so that split and named return the type that is asked about.
template <class Self>
struct Minimal {
    using Stream = InlineStream;
    std::size_t rank() const { return 0; }
    std::size_t size() const { return 1; }
    const char* axes() const { return "world"; }
    Self split(std::size_t, std::size_t, std::string_view, Where) const { return {}; }
    Self named(std::string_view) const { return {}; }
    void barrier(Stream, Where) const {}
};
struct Least : Minimal<Least> {};
static_assert(Communicator<Least>);

// One violator for each requirement.
struct NoStream : Minimal<NoStream> {
    struct Stream {};
};
struct RankOfText : Minimal<RankOfText> {
    std::string rank() const { return "0"; }
};
struct SizeNotConst : Minimal<SizeNotConst> {
    int size() { return 1; }
};
struct NoAxes : Minimal<NoAxes> {
    int axes() const { return 1; }
};
struct SplitsToAnother : Minimal<Least> {
    SplitsToAnother named(std::string_view) const { return {}; }
};
struct SplitsInSilence : Minimal<SplitsInSilence> {
    SplitsInSilence split(std::size_t, std::size_t, std::string_view) const { return {}; }  // no caller's line
};
struct NamesAnother : Minimal<NamesAnother> {
    Least named(std::string_view) const { return {}; }
};
struct BarrierWithoutStream : Minimal<BarrierWithoutStream> {
    void barrier(Where) const {}
};
struct NotCopyable : Minimal<NotCopyable> {
    NotCopyable() = default;
    NotCopyable(NotCopyable&&) = default;
    NotCopyable& operator=(NotCopyable&&) = default;
};
static_assert(!Communicator<NoStream> && !Communicator<RankOfText> && !Communicator<SizeNotConst>);
static_assert(!Communicator<NoAxes> && !Communicator<SplitsToAnother> && !Communicator<SplitsInSilence>);
static_assert(!Communicator<NamesAnother> && !Communicator<BarrierWithoutStream> && !Communicator<NotCopyable>);
static_assert(!Communicator<int>);

// Capabilities: a communicator has those whose member it has, for those types alone.
struct Gathers : Minimal<Gathers> {
    void all_gather(std::span<const float>, std::span<float>, Stream, Where) const {}
};
static_assert(Communicator<Gathers> && engine::AllGathers<Gathers, float>);
static_assert(!engine::AllGathers<Gathers, double> && !engine::AllGathers<Least, float>);

struct Scatters : Minimal<Scatters> {
    void reduce_scatter(ReduceOp, std::span<const bf16>, std::span<float>, Stream, Where) const {}
};
static_assert(engine::ReduceScatters<Scatters, bf16, float>);
static_assert(!engine::ReduceScatters<Scatters, float, float> && !engine::ReduceScatters<Scatters, bf16, double>);
static_assert(!engine::ReduceScatters<Gathers, bf16, float>);

struct Reduces : Minimal<Reduces> {
    void all_reduce(ReduceOp, std::span<const bf16>, std::span<float>, Stream, Where) const {}
};
static_assert(engine::AllReduces<Reduces, bf16, float> && !engine::AllReduces<Reduces, float, float>);
static_assert(!engine::AllReduces<Scatters, bf16, float>);

struct Copies : Minimal<Copies> {
    void broadcast(std::span<float>, std::size_t, Stream, Where) const {}
    void all_to_all(std::span<const float>, std::span<float>, Stream, Where) const {}
    void all_to_all_uneven(std::span<const float>, Counts, std::span<float>, Counts, Stream, Where) const {}
};
static_assert(engine::Broadcasts<Copies, float> && !engine::Broadcasts<Copies, double> &&
              !engine::Broadcasts<Reduces, float>);
static_assert(engine::ExchangesAllToAll<Copies, float> && !engine::ExchangesAllToAll<Reduces, float>);
static_assert(engine::ExchangesUnevenly<Copies, float> && !engine::ExchangesUnevenly<Copies, double>);
static_assert(!engine::ExchangesUnevenly<Reduces, float>);

// Without the counts of what it receives, a rank cannot say what it expects of each peer.
struct OneSideCounts : Minimal<OneSideCounts> {
    void all_to_all_uneven(std::span<const float>, Counts, std::span<float>, Stream, Where) const {}
};
static_assert(!engine::ExchangesUnevenly<OneSideCounts, float>);

struct Passes : Minimal<Passes> {
    void send(std::span<const float>, std::size_t, Stream, Where) const {}
    void receive(std::span<float>, std::size_t, Stream, Where) const {}
    void send_receive(std::span<const float>, std::size_t, std::span<float>, std::size_t, Stream, Where) const {}
};
struct OnlySends : Minimal<OnlySends> {
    void send(std::span<const float>, std::size_t, Stream, Where) const {}
};
static_assert(engine::SendsAndReceives<Passes, float> && !engine::SendsAndReceives<OnlySends, float>);
static_assert(!engine::SendsAndReceives<Passes, fp16>);

// The engines of the library have every capability for every element.
template <class C, class... T>
constexpr bool complete = Communicator<C> && (engine::AllGathers<C, T> && ...) && (engine::Broadcasts<C, T> && ...) &&
                          (engine::ExchangesAllToAll<C, T> && ...) && (engine::ExchangesUnevenly<C, T> && ...) &&
                          (engine::SendsAndReceives<C, T> && ...) && (engine::ReduceScatters<C, T, T> && ...) &&
                          (engine::AllReduces<C, T, T> && ...);
static_assert(complete<self::Communicator, double, float, bf16, fp16, std::int64_t, std::int32_t, std::uint8_t>);
static_assert(complete<threads::Communicator, double, float, bf16, fp16, std::int64_t, std::int32_t, std::uint8_t>);
static_assert(engine::ReduceScatters<threads::Communicator, bf16, float> &&
              engine::AllReduces<threads::Communicator, fp16, float>);

}  // namespace

TEST_CASE("Communicator: a minimal model is enough for the verbs that it has") {
    const Gathers comm;
    float shard = 1;
    float full = 0;
    CHECK_NOTHROW(all_gather(comm, std::span<const float>(&shard, 1), std::span<float>(&full, 1), {}));
    CHECK_THROWS(all_gather(comm, std::span<const float>(&shard, 1), std::span<float>{}, {}));
}

}  // namespace communicator_test
