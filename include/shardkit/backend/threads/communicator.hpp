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
/// It is valid until the function given to `launch` returns, and used only by its rank's thread.
/// Order:   calls over the same ranks meet in the order of their stream: all ranks must give a call to the same
///          stream, and streams do not wait for each other.
/// Errors:  PeerError when a rank failed or returned early, or all ranks wait for each other; CommError, on every
///          rank and before any output is written, when the ranks' calls disagree in verb, type, count, operation or
///          root.
class RankVerbs final : public host::Verbs {
  public:
    /// Makes the end of a group under a name.
    RankVerbs(World& world, const std::shared_ptr<Group>& group, std::size_t rank, std::string_view axes)
        : RankVerbs(world.handle(*group, rank, axes), group) {}

    std::string_view engine_name() const noexcept override { return "threads"; }
    engine::Traits traits() const noexcept override { return threads::traits; }
    Streams streams() const noexcept override {
        RankState& state = handle_.world->state(handle_);
        return {{}, state.stream(Caller::communication), state.stream(Caller::reduction)};
    }

    std::shared_ptr<const host::Verbs> named(std::string_view axes) const override {
        return std::make_shared<const RankVerbs>(*handle_.world, group_, rank(), axes);
    }
    /// The first member of each group makes it, and the others share it.
    [[gnu::cold]] std::shared_ptr<const host::Verbs> split(std::size_t color, std::size_t key, std::string_view axes,
                                                           const shardkit::Call& call) const override {
        struct Wish {
            std::size_t color;
            std::size_t key;
        };
        const auto exchange = [&](const auto& published, const auto& read) {
            const Seat seat(handle_);
            // NOLINTNEXTLINE(bugprone-sizeof-expression): addresses are published too
            Round round(seat, call, &published, sizeof(published));
            if (!round.agreed()) { round.leave_and_throw(); }
            read(round);
            round.meet();
        };
        shardkit::detail::List<Wish> wishes(size());  // allocated here: nothing may throw inside a round
        exchange(Wish{color, key}, [&](const Round& round) {
            for (std::size_t q = 0; q < size(); ++q) { wishes[q] = *round.input<Wish>(q); }
        });
        const shared::detail::SplitGroups split(wishes, rank());
        const std::size_t first = split.members.front();
        std::shared_ptr<Group> made;
        if (first == rank()) {
            std::vector<std::size_t> world_ranks;
            for (const std::size_t member : split.members) { world_ranks.push_back(handle_.world_rank(member)); }
            made = handle_.world->make_group(std::move(world_ranks));
        }
        exchange(&made, [&](const Round& round) {
            if (first != rank()) { made = **round.input<const std::shared_ptr<Group>*>(first); }
        });
        return std::make_shared<const RankVerbs>(*handle_.world, made, split.place, axes);
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
    RankVerbs(const GroupHandle& handle, const std::shared_ptr<Group>& group)
        : host::Verbs(handle.rank, group->size(), *handle.label), handle_(handle), group_(group) {}

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
    std::shared_ptr<Group> group_;
};

}  // namespace shardkit::threads::detail
