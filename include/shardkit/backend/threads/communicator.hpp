// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/backend/host/memory.hpp>
#include <shardkit/backend/host/reducer.hpp>
#include <shardkit/backend/host/verbs.hpp>
#include <shardkit/backend/shared/split_groups.hpp>
#include <shardkit/backend/shared/verbs.hpp>
#include <shardkit/backend/threads/group.hpp>
#include <shardkit/backend/threads/rendezvous.hpp>
#include <shardkit/backend/threads/world.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/comm/streams.hpp>
#include <shardkit/comm/uneven_counts.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/verbs/communicator.hpp>

namespace shardkit::threads::detail {

/// A rank's group and place after a split.
struct SplitResult {
    std::shared_ptr<Group> group;
    std::size_t rank = 0;
};

/// Splits a group, collectively over `handle.group`: ranks with the same color form a group, ordered by key, then by
/// rank. The first member makes the group, and the others take its address. A template, so that a file that splits
/// nothing compiles none of it.
template <class Handle>
[[gnu::cold]] SplitResult split_group(const Handle& handle, std::size_t color, std::size_t key,
                                      const shardkit::Call& call) {
    struct Wish {
        std::size_t color;
        std::size_t key;
    };
    const std::size_t size = handle.group->size();
    const Wish own{color, key};
    shardkit::detail::List<Wish> wishes(size);  // allocated here: nothing may throw inside a round
    const auto exchange = [&](const auto& published, auto read) {
        const Seat seat(handle);
        // NOLINTNEXTLINE(bugprone-sizeof-expression): addresses are published too
        Round round(seat, call, &published, sizeof(published));
        if (!round.agreed()) { round.leave_and_throw(); }
        read(round);
        round.leave();
    };
    exchange(own, [&](const Round& round) {
        for (std::size_t q = 0; q < size; ++q) { wishes[q] = *round.input<Wish>(q); }
    });

    const shared::detail::SplitGroups split(wishes, handle.rank);
    SplitResult result;
    result.rank = split.place;
    const std::size_t first = split.members.front();
    Group* made = nullptr;
    if (first == handle.rank) {
        std::vector<std::size_t> world_ranks;
        for (const std::size_t member : split.members) { world_ranks.push_back(handle.world_rank(member)); }
        made = &handle.world->make_group(std::move(world_ranks));
    }
    const Group* group = nullptr;
    exchange(made, [&](const Round& round) { group = *round.input<Group*>(first); });
    result.group = handle.world->take_group(*group);
    return result;
}

}  // namespace shardkit::threads::detail

namespace shardkit::threads {

/// What the planner must know about the engine.
inline constexpr engine::Traits traits{.gathered_all_reduce_addends = detail::carried_bytes,
                                       .adds_along_trees = true};

}  // namespace shardkit::threads

namespace shardkit::threads::detail {

/// A rank's end of a group of ranks that are threads of this process. Verbs publish pointers, read the peers' memory
/// directly and reduce in rank order, without staging copies or allocation. On a default stream they return when the
/// data is there. On a stream of the rank, with LaunchOptions::overlap, they return at once: the rank must keep their
/// memory until it has waited for them, and the next wait throws an error.
///
/// It is valid until the function given to `launch` returns, and used only by its rank's thread. A group that a split
/// made is freed with the last handles of its members.
/// Order:   calls over the same ranks meet in the order of their stream: all ranks must give a call to the same
///          stream, and streams do not wait for each other.
/// Errors:  PeerError when a rank failed or returned early, or all ranks wait for each other; CommError, on every
///          rank and before any output is written, when the ranks' calls disagree in verb, type, count, operation or
///          root.
class RankVerbs final : public host::Verbs {
  public:
    RankVerbs(const GroupHandle& handle, std::shared_ptr<Group> kept)
        : host::Verbs(handle.rank, handle.group->size(), *handle.label), handle_(handle), kept_(std::move(kept)) {}

    /// Makes the end of `group`, which the world or `kept` keeps.
    static Communicator communicator(World& world, Group& group, std::size_t rank, std::string_view axes,
                                     std::shared_ptr<Group> kept = {}) {
        GroupHandle handle{&world, &group, rank, nullptr, nullptr};
        RankState& state = world.state(handle);
        handle.label = &state.journal.label(axes, group.world_ranks());
        handle.thread = &state;
        return Communicator(std::make_shared<const RankVerbs>(handle, std::move(kept)));
    }

    std::string_view engine_name() const noexcept override { return "threads"; }
    engine::Traits traits() const noexcept override { return threads::traits; }
    Streams streams() const noexcept override {
        RankState& state = handle_.world->state(handle_);
        return {{}, state.stream(Caller::communication), state.stream(Caller::reduction)};
    }

    std::shared_ptr<const host::Verbs> named(std::string_view axes) const override {
        GroupHandle handle = handle_;
        handle.label = &handle_.label->journal.label(axes, handle_.group->world_ranks());
        return std::make_shared<const RankVerbs>(handle, kept_);
    }
    std::shared_ptr<const host::Verbs> split(std::size_t color, std::size_t key, std::string_view axes,
                                             const shardkit::Call& call) const override {
        const SplitResult made = split_group(handle_, color, key, call);
        GroupHandle handle = handle_;
        handle.group = made.group.get();
        handle.rank = made.rank;
        handle.label = &handle_.label->journal.label(axes, made.group->world_ranks());
        return std::make_shared<const RankVerbs>(handle, made.group);
    }

    void barrier(const Stream& stream, const shardkit::Call& call) const override {
        execute(stream, call, {.copy = [](const Round&, const Work&) {}});
    }

    std::uint64_t all_gather(host::ConstMemory shard, host::Memory full, const Stream& stream,
                             const shardkit::Call& call) const override {
        const auto copy = [](const Round& round, const Work& work) {
            shared::detail::all_gather(round, work.written);
        };
        execute(stream, call, {.read = shard, .written = full, .copy = copy});
        return shardkit::detail::part_from_peers(call.payload, size());
    }

    std::uint64_t reduce_scatter(const host::Reducer& reducer, ReduceOp op, host::ConstMemory full,
                                 host::Memory shard, const Stream& stream,
                                 const shardkit::Call& call) const override {
        const auto copy = [](const Round& round, const Work& work) {
            shared::detail::reduce_scatter(round, *work.reducer, ReduceOp(work.argument), work.written);
        };
        execute(stream, call, {full, shard, static_cast<std::size_t>(op), &reducer, copy});
        return (size() - 1) * shard.count * full.size;
    }

    /// Reduces one chunk per rank and writes it to all ranks, so the moved bytes depend on the size of a rank's
    /// chunk. Chunks are equal if the count is a multiple of the ranks times 128 bytes. Inputs of up to
    /// `carried_bytes` are reduced completely by every rank.
    std::uint64_t all_reduce(const host::Reducer& reducer, ReduceOp op, host::ConstMemory input, host::Memory output,
                             const Stream& stream, const shardkit::Call& call) const override {
        const auto copy = [](const Round& round, const Work& work) {
            shared::detail::all_reduce(round, *work.reducer, ReduceOp(work.argument), work.written);
        };
        execute(stream, call, {input, output, static_cast<std::size_t>(op), &reducer, copy});
        if (input.bytes() <= carried_bytes) { return (size() - 1) * input.bytes(); }
        const host::detail::Chunk own =
            host::detail::chunk_of(input.count, std::min(input.size, output.size), rank(), size());
        return (size() - 1) * own.size() * (input.size + output.size);
    }

    std::uint64_t broadcast(host::Memory values, std::size_t root, const Stream& stream,
                            const shardkit::Call& call) const override {
        const auto copy = [](const Round& round, const Work& work) {
            shared::detail::broadcast(round, work.written, work.argument);
        };
        execute(stream, call, {.read = values, .written = values, .argument = root, .copy = copy});
        return rank() == root ? 0 : values.bytes();
    }

    std::uint64_t all_to_all(host::ConstMemory sent, host::Memory received, const Stream& stream,
                             const shardkit::Call& call) const override {
        const auto copy = [](const Round& round, const Work& work) {
            shared::detail::all_to_all(round, work.written);
        };
        execute(stream, call, {.read = sent, .written = received, .copy = copy});
        return shardkit::detail::part_from_peers(call.payload, size());
    }

    void all_to_all_uneven(host::ConstMemory sent, std::span<const std::size_t> send_counts, host::Memory received,
                           std::span<const std::size_t> receive_counts, const Stream& stream,
                           const shardkit::Call& call) const override {
        const auto run = [](const GroupHandle& handle, const shardkit::Call& made, const Work& work) {
            const Seat seat(handle);
            const UnevenInput shown{
                {work.read.at, work.read.bytes(),
                 shardkit::detail::count_balance(seat.rank(), {work.send_counts, work.receive_counts})},
                work.send_counts.data(),
                work.receive_counts.data()};
            Round round(seat, made, &shown, sizeof shown);
            if (!round.agreed()) { round.leave_and_throw(); }
            require_matching_counts(handle, round);
            const host::Memory to = work.written;
            shared::detail::all_to_all_uneven(round, seat.rank(), to, work.receive_counts, [&](std::size_t q) {
                return static_cast<const std::byte*>(round.input<UnevenInput>(q)->sent) +
                       begin_of_piece(round, q) * to.size;
            });
            round.meet();
        };
        execute(stream, call, {sent, received, 0, nullptr, nullptr, run, send_counts, receive_counts});
    }

    void send(host::ConstMemory values, std::size_t to, const Stream& stream,
              const shardkit::Call& call) const override {
        const auto run = [](const GroupHandle& handle, const shardkit::Call& made, const Work& work) {
            Post(handle, work.argument, {made, work.read.at}).complete();
        };
        execute(stream, call, {.read = values, .argument = to, .run = run});
    }

    void receive(host::Memory values, std::size_t from, const Stream& stream,
                 const shardkit::Call& call) const override {
        const auto run = [](const GroupHandle& handle, const shardkit::Call& made, const Work& work) {
            take(handle, work.argument, work.written.at, made);
        };
        execute(stream, call, {.written = values, .argument = from, .run = run});
    }

    void send_receive(host::ConstMemory sent, std::size_t to, host::Memory received, std::size_t from,
                      const Stream& stream, const shardkit::Call& call) const override {
        const auto run = [](const GroupHandle& handle, const shardkit::Call& made, const Work& work) {
            Post post(handle, work.argument, {made, work.read.at});
            shardkit::Call receives = made;
            receives.signature.verb = Verb::receive;
            receives.signature.count = work.written.count;
            take(handle, work.from, work.written.at, receives);
            post.complete();
        };
        execute(stream, call, {.read = sent, .written = received, .argument = to, .run = run, .from = from});
    }

  private:
    struct Work;
    using Run = void (*)(const GroupHandle& handle, const shardkit::Call& call, const Work& work);

    /// What a call does: the memory of this rank that it, or its peers, read and write, and a function.
    struct Work {
        host::ConstMemory read{};
        host::Memory written{};
        std::size_t argument = 0;  ///< the operation, the root, or the other end of a message
        const host::Reducer* reducer = nullptr;
        void (*copy)(const Round& round, const Work& work) = nullptr;  ///< of a collective
        Run run = &collective;
        std::span<const std::size_t> send_counts{};
        std::span<const std::size_t> receive_counts{};
        std::size_t from = 0;  ///< the sender, where `argument` is the receiver
    };

    /// Runs the work in the order of the stream, a default one or one of the rank's, with the handle of the thread
    /// that runs it: the stream's, or the rank's own. Compiled once for all verbs.
    /// @throws UsageError when the stream is none of these; an exception of the work in this thread
    [[gnu::noinline]] void execute(const Stream& stream, const shardkit::Call& call, const Work& work) const {
        if (stream.is_inline()) {
            work.run(handle_, call, work);
            return;
        }
        const Caller caller = handle_.world->owner(stream, handle_, call.where);
        GroupHandle of_stream = handle_;
        of_stream.group = &handle_.group->of(caller);
        of_stream.thread = &handle_.world->state(handle_).thread(caller);
        handle_.group->begin_use();
        handle_.label->journal.recorder().queue(call);
        stream.submit([of_stream, used = handle_.group, call, work] {
            const Group::EndUse ends{*used};
            auto& recorder = of_stream.label->journal.recorder();
            recorder.begun(call);
            work.run(of_stream, call, work);
            recorder.done(call);
        });
    }

    static void collective(const GroupHandle& handle, const shardkit::Call& call, const Work& work) {
        const Seat seat(handle);
        Round round(seat, call, work.read.at, work.read.bytes(), work.written.at);
        if (!round.agreed()) { round.leave_and_throw(); }
        work.copy(round, work);
        round.leave();
    }

    GroupHandle handle_;
    std::shared_ptr<Group> kept_;  // null for the world's group
};

}  // namespace shardkit::threads::detail
