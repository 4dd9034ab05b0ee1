// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <doctest/doctest.h>

#include <shardkit/backend/self/communicator.hpp>
#include <shardkit/backend/threads/communicator.hpp>
#include <shardkit/comm/all_gather.hpp>
#include <shardkit/comm/all_reduce.hpp>
#include <shardkit/comm/all_to_all.hpp>
#include <shardkit/comm/barrier.hpp>
#include <shardkit/comm/broadcast.hpp>
#include <shardkit/comm/reduce_scatter.hpp>
#include <shardkit/comm/send_receive.hpp>
#include <shardkit/rank/context.hpp>

namespace communicator_concepts_test {

namespace {

using namespace shardkit;

template <class C, class T>
constexpr bool carries =
    engine::AllGathers<C, T>&& engine::ReduceScatters<C, T, T>&& engine::AllReduces<C, T, T>&& engine::Broadcasts<
        C, T>&& engine::ExchangesAllToAll<C, T>&& engine::ExchangesUnevenly<C, T>&& engine::SendsAndReceives<C, T>;

template <class C>
constexpr bool is_complete = Communicator<C>&& engine::CountsTraffic<C>&& carries<C, double>&& carries<C, float>&&
    carries<C, bf16>&& carries<C, fp16>&& carries<C, std::int64_t>&& carries<C, std::int32_t>&&
        carries<C, std::uint64_t>&& carries<C, std::uint32_t>&& carries<C, std::uint8_t>&&
            engine::ReduceScatters<C, bf16, float>&& engine::ReduceScatters<C, float, double>&&
                engine::AllReduces<C, fp16, float>&& engine::AllReduces<C, float, bf16>;

static_assert(is_complete<self::Communicator>);
static_assert(is_complete<threads::Communicator>);

struct NoElement {
    void* pointer;
};
static_assert(!engine::AllGathers<threads::Communicator, NoElement>);
static_assert(!engine::AllReduces<threads::Communicator, NoElement, float>);
static_assert(!engine::AllReduces<self::Communicator, float, NoElement>);
static_assert(!engine::Broadcasts<self::Communicator, NoElement>);

enum class Member {
    none,
    rank,
    size,
    axes,
    split,
    named,
    barrier,
    all_gather,
    reduce_scatter,
    all_reduce,
    broadcast,
    all_to_all,
    all_to_all_uneven,
    send,
    receive,
    send_receive
};

/// What the concepts ask for and no more, less one member.
template <Member Missing>
struct Model {
    using Stream = InlineStream;
    template <class T>
    using In = std::span<const T>;
    template <class T>
    using Out = std::span<T>;
    using Where = SourceLocation;
    using Counts = std::span<const std::size_t>;

    std::size_t rank() const requires(Missing != Member::rank) { return 0; }
    std::size_t size() const requires(Missing != Member::size) { return 1; }
    std::string_view axes() const requires(Missing != Member::axes) { return "x"; }
    Model split(std::size_t, std::size_t, std::string_view, Where) const requires(Missing != Member::split) {
        return *this;
    }
    Model named(std::string_view) const requires(Missing != Member::named) { return *this; }
    void barrier(Stream, Where) const requires(Missing != Member::barrier) {}
    void all_gather(In<float>, Out<float>, Stream, Where) const requires(Missing != Member::all_gather) {}
    void reduce_scatter(ReduceOp, In<float>, Out<float>, Stream, Where) const
        requires(Missing != Member::reduce_scatter) {}
    void all_reduce(ReduceOp, In<float>, Out<float>, Stream, Where) const requires(Missing != Member::all_reduce) {}
    void broadcast(Out<float>, std::size_t, Stream, Where) const requires(Missing != Member::broadcast) {}
    void all_to_all(In<float>, Out<float>, Stream, Where) const requires(Missing != Member::all_to_all) {}
    void all_to_all_uneven(In<float>, Counts, Out<float>, Counts, Stream, Where) const
        requires(Missing != Member::all_to_all_uneven) {}
    void send(In<float>, std::size_t, Stream, Where) const requires(Missing != Member::send) {}
    void receive(Out<float>, std::size_t, Stream, Where) const requires(Missing != Member::receive) {}
    void send_receive(In<float>, std::size_t, Out<float>, std::size_t, Stream, Where) const
        requires(Missing != Member::send_receive) {}
};

/// Which concepts a type satisfies, one bit each.
template <class C>
constexpr unsigned satisfied = (Communicator<C> ? 1U : 0U) | (engine::AllGathers<C, float> ? 2U : 0U) |
                               (engine::ReduceScatters<C, float, float> ? 4U : 0U) |
                               (engine::AllReduces<C, float, float> ? 8U : 0U) |
                               (engine::Broadcasts<C, float> ? 16U : 0U) |
                               (engine::ExchangesAllToAll<C, float> ? 32U : 0U) |
                               (engine::SendsAndReceives<C, float> ? 64U : 0U) |
                               (engine::ExchangesUnevenly<C, float> ? 128U : 0U);

static_assert(satisfied<Model<Member::none>> == 255U);
// Without a basic member nothing is left, because every capability is one of a communicator.
static_assert(satisfied<Model<Member::rank>> == 0U);
static_assert(satisfied<Model<Member::size>> == 0U);
static_assert(satisfied<Model<Member::axes>> == 0U);
static_assert(satisfied<Model<Member::split>> == 0U);
static_assert(satisfied<Model<Member::named>> == 0U);
static_assert(satisfied<Model<Member::barrier>> == 0U);
// Without a verb's member exactly that verb's concept fails.
static_assert(satisfied<Model<Member::all_gather>> == (255U & ~2U));
static_assert(satisfied<Model<Member::reduce_scatter>> == (255U & ~4U));
static_assert(satisfied<Model<Member::all_reduce>> == (255U & ~8U));
static_assert(satisfied<Model<Member::broadcast>> == (255U & ~16U));
static_assert(satisfied<Model<Member::all_to_all>> == (255U & ~32U));
static_assert(satisfied<Model<Member::all_to_all_uneven>> == (255U & ~128U));
static_assert(satisfied<Model<Member::send>> == (255U & ~64U));
static_assert(satisfied<Model<Member::receive>> == (255U & ~64U));
static_assert(satisfied<Model<Member::send_receive>> == (255U & ~64U));

// A type that the engine cannot carry is refused even where the members exist.
static_assert(!engine::AllGathers<Model<Member::none>, double>);

/// Copying is part of being a communicator.
struct MoveOnly : Model<Member::none> {
    MoveOnly(MoveOnly&&) = default;
};
static_assert(!Communicator<MoveOnly>);

struct NoStream {
    using Event = int;
};
static_assert(Stream<InlineStream>);
static_assert(!Stream<NoStream>);
static_assert(!engine::CountsTraffic<Model<Member::none>>);

}  // namespace

TEST_CASE("communicator concepts: the minimal model can be called through every verb") {
    const Model<Member::none> comm;
    float value = 1.0F;
    const std::span<float> out(&value, 1);
    const std::span<const float> in(out);
    const std::array<std::size_t, 1> one{1};
    CHECK_NOTHROW(all_gather(comm, in, out, {}));
    CHECK_NOTHROW(all_gather_in_place(comm, out, {}));
    CHECK_NOTHROW(reduce_scatter(comm, ReduceOp::sum, in, out, {}));
    CHECK_NOTHROW(reduce_scatter_in_place(comm, ReduceOp::sum, out, {}));
    CHECK_NOTHROW(all_reduce(comm, ReduceOp::sum, in, out, {}));
    CHECK_NOTHROW(all_reduce_in_place(comm, ReduceOp::sum, out, {}));
    CHECK_NOTHROW(broadcast(comm, out, 0, {}));
    CHECK_NOTHROW(all_to_all(comm, in, out, {}));
    CHECK_NOTHROW(all_to_all_uneven(comm, in, one, out, one, {}));
    CHECK_NOTHROW(send_receive(comm, in, 0, out, 0, {}));
    CHECK_NOTHROW(barrier(comm, {}));
}

}  // namespace communicator_concepts_test
