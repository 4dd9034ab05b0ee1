// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/backend/host/memory.hpp>
#include <shardkit/backend/host/reducer.hpp>
#include <shardkit/backend/host/verbs.hpp>
#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/collective.hpp>
#include <shardkit/backend/mpi/copies.hpp>
#include <shardkit/backend/mpi/environment.hpp>
#include <shardkit/backend/mpi/exchange.hpp>
#include <shardkit/backend/mpi/group.hpp>
#include <shardkit/backend/mpi/message.hpp>
#include <shardkit/backend/mpi/options.hpp>
#include <shardkit/backend/mpi/staged.hpp>
#include <shardkit/backend/mpi/uneven.hpp>
#include <shardkit/backend/mpi/world.hpp>
#include <shardkit/backend/shared/split_groups.hpp>
#include <shardkit/backend/shared/verbs.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/comm/streams.hpp>
#include <shardkit/verbs/communicator.hpp>

namespace shardkit::mpi::detail {

/// Splits a group, collectively over `call.group`: ranks with the same color form a group, ordered by key, then by
/// rank. A group that no member uses any more is reused: MPI has few communicators, and freeing one needs all of its
/// ranks at the same time.
/// Cost:    an all-gather of 32 bytes per rank, and one of 64 bytes if all members of a group have idle ones; if a
///          group is new, MPI_Comm_split, which blocks, and with two lanes MPI_Comm_idup: no lane may have work in
///          progress.
inline Group& split_group(const Call& call, std::size_t color, std::size_t key) {
    Group& parent = call.group;
    const auto world_ranks_of = [&](const std::vector<std::size_t>& members) {
        std::vector<std::size_t> ranks;
        for (const std::size_t member : members) { ranks.push_back(parent.world_ranks[member]); }
        return ranks;
    };
    const shared::detail::ReusingSplit split(
        {color, key, call.world.next_number(), call.world.has_idle() ? 1U : 0U}, parent.rank, 1,
        [&](const auto& record) { return call.lane.gather(call, record); },
        [&](const std::vector<std::size_t>& members) { return call.world.idle_groups(world_ranks_of(members)); });
    if (!split.makes) { return call.world.group_of(split.again); }
    Group made;
    made.world_ranks = world_ranks_of(split.members);
    made.rank = split.place;
    made.number = split.number;
    // MPI's colors are ints: the index of a color is used instead of the color.
    MPI_Comm comm = MPI_COMM_NULL;
    {
        // All ranks are here, as they have gathered: only one that ends now keeps the others.
        const BlockingCall bounded("MPI_Comm_split", call.doing(),
                                   call.world.journal().limit(call.world.options().timeout), call.where);
        call.mpi().check(
            MPI_Comm_split(call.channel.comm, split.again != 0 ? MPI_UNDEFINED : static_cast<int>(split.own()),
                           static_cast<int>(made.rank), &comm),
            "MPI_Comm_split");
    }
    if (split.again != 0) { return call.world.group_of(split.again); }
    call.mpi().check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    made.add_channel(comm, true);
    Group& added = call.world.add_group(std::move(made), call);
    call.world.meet(call.world.call(call.lane, added, call.axes, call));
    return added;
}

}  // namespace shardkit::mpi::detail

namespace shardkit::mpi {

/// What the planner must know about an engine that adds so.
constexpr engine::Traits traits_of(Sums sums = Sums::exchanged) noexcept {
    return sums == Sums::by_mpi ? detail::Staged::traits : detail::Exchange::traits;
}

}  // namespace shardkit::mpi

namespace shardkit::mpi::detail {

/// A rank's end of a group of MPI processes, used only by its rank's thread. On an inline stream a verb returns when
/// the data is there. On the World's streams it runs while the rank goes on, and the next wait throws its error.
/// Errors: CommError with MPI's text when a call fails, on every rank when the ranks' calls disagree (before any
/// output is written), and after Options::timeout; PeerError when a needed rank has returned.
class RankVerbs final : public host::Verbs {
  public:
    RankVerbs(World& world, Group& group, std::string_view axes)
        : host::Verbs(group.rank, group.size(), world.journal().label(axes, group.world_ranks)),
          world_(&world),
          group_(&group),
          handle_(group.handles.handle()) {}

    std::string_view engine_name() const noexcept override { return "mpi"; }
    engine::Traits traits() const noexcept override { return traits_of(world_->options().sums); }
    Streams streams() const noexcept override { return world_->streams(); }
    std::size_t host_of(std::size_t rank) const noexcept override { return group_->homes[rank].host; }
    std::shared_ptr<void> place(std::size_t bytes) const override { return world_->place(bytes); }
    std::size_t most_placed_bytes() const override {
        return world_->shares_memory() ? world_->host().window()->most_held() : 0;
    }

    std::shared_ptr<const host::Verbs> named(std::string_view axes) const override {
        return std::make_shared<const RankVerbs>(*world_, *group_, axes);
    }
    std::shared_ptr<const host::Verbs> split(std::size_t color, std::size_t key, std::string_view axes,
                                             const shardkit::Call& what) const override {
        Group* made = nullptr;
        run(what, Stream(), {}, nullptr,
            [&made, color, key](const Messages& way) { made = &split_group(way.call, color, key); });
        return std::make_shared<const RankVerbs>(*world_, *made, axes);
    }

    void barrier(const Stream& stream, const shardkit::Call& what) const override {
        run(
            what, stream, {}, [](const Round&) {},
            [](const Messages& way) {
                const Call& call = way.call;
                // The comparison is a barrier already.
                if (call.channel.block != nullptr || call.world.options().compare_calls == CompareCalls::each_call) {
                    return;
                }
                call.lane.complete(call, "MPI_Ibarrier",
                                   [&](MPI_Request* request) { return MPI_Ibarrier(call.channel.comm, request); });
            });
    }

    /// Compares the ranks' calls over the group, if Options::compare_calls is each_step and the comparison needs
    /// messages. It comes after all work given to the streams. Collective; the host waits.
    /// @throws CommError, on every rank, which names two of them and the first call in which they differ
    void compare_calls(SourceLocation where) const override {
        if (world_->options().compare_calls != CompareCalls::each_step || !group_->compares_by_messages()) { return; }
        world_->execute(Stream(), where, [world = world_, group = group_, label = &label(), where](Lane& lane) {
            Call call = world->call(lane, *group, label->axes, {{.verb = Verb::barrier}, 0, where});
            compare_steps(call);
        });
    }

    std::uint64_t all_gather(host::ConstMemory shard, host::Memory full, const Stream& stream,
                             const shardkit::Call& what) const override {
        run(
            what, stream, {shard.at, shard.bytes(), full.at},
            [=](const Round& round) { shared::detail::all_gather(round, full); },
            [=](const Messages& way) { detail::all_gather(way, shard, full); });
        return (size() - 1) * shard.bytes();
    }

    std::uint64_t reduce_scatter(const host::Reducer& reducer, ReduceOp op, host::ConstMemory full,
                                 host::Memory shard, const Stream& stream,
                                 const shardkit::Call& what) const override {
        if (adds_by_mpi()) {
            run(what, stream, {}, nullptr,
                [=, &reducer](const Messages& way) { Staged::reduce_scatter(way.call, reducer, op, full, shard); });
            return Exchange::moved_by_reduce_scatter(*group_, shard.count, Staged::sent_size(reducer, op));
        }
        run(
            what, stream, {full.at, full.bytes(), nullptr},
            [=, &reducer](const Round& round) { shared::detail::reduce_scatter(round, reducer, op, shard); },
            [=, &reducer](const Messages& way) { Exchange::reduce_scatter(way, reducer, op, full, shard); });
        return Exchange::moved_by_reduce_scatter(*group_, shard.count, reducer.in_size);
    }

    std::uint64_t all_reduce(const host::Reducer& reducer, ReduceOp op, host::ConstMemory input, host::Memory output,
                             const Stream& stream, const shardkit::Call& what) const override {
        if (adds_by_mpi()) {
            run(what, stream, {}, nullptr,
                [=, &reducer](const Messages& way) { Staged::all_reduce(way.call, reducer, op, input, output); });
            return Staged::moved_by_all_reduce(*group_, reducer, op, input);
        }
        run(
            what, stream, {input.at, input.bytes(), output.at},
            [=, &reducer](const Round& round) { shared::detail::all_reduce(round, reducer, op, output); },
            [=, &reducer](const Messages& way) { Exchange::all_reduce(way, reducer, op, input, output); });
        return Exchange::moved_by_all_reduce(*group_, reducer, input);
    }

    std::uint64_t broadcast(host::Memory values, std::size_t root, const Stream& stream,
                            const shardkit::Call& what) const override {
        run(
            what, stream, {values.at, values.bytes(), values.at},
            [=](const Round& round) { shared::detail::broadcast(round, values, root); },
            [=](const Messages& way) { detail::broadcast(way, values, root); });
        return rank() == root ? 0 : values.bytes();
    }

    std::uint64_t all_to_all(host::ConstMemory sent, host::Memory received, const Stream& stream,
                             const shardkit::Call& what) const override {
        run(
            what, stream, {sent.at, sent.bytes(), nullptr},
            [=](const Round& round) { shared::detail::all_to_all(round, received); },
            [=](const Messages& way) { detail::all_to_all(way, sent, received); });
        return (size() - 1) * (sent.bytes() / size());
    }

    void all_to_all_uneven(host::ConstMemory sent, std::span<const std::size_t> send_counts, host::Memory received,
                           std::span<const std::size_t> receive_counts, const Stream& stream,
                           const shardkit::Call& what) const override {
        const UnevenCounts counts{send_counts, receive_counts};
        execute(what, stream, [=](Call& call) { detail::all_to_all_uneven(call, sent, received, counts); });
    }

    void send(host::ConstMemory values, std::size_t to, const Stream& stream,
              const shardkit::Call& what) const override {
        pass(what, stream, [=](Message& message) { message.send(values, to); });
    }
    void receive(host::Memory values, std::size_t from, const Stream& stream,
                 const shardkit::Call& what) const override {
        pass(what, stream, [=](Message& message) { message.receive(values, from); });
    }
    void send_receive(host::ConstMemory sent, std::size_t to, host::Memory received, std::size_t from,
                      const Stream& stream, const shardkit::Call& what) const override {
        pass(what, stream, [=](Message& message) {
            message.send(sent, to);
            message.receive(received, from);
        });
    }

  private:
    bool adds_by_mpi() const noexcept { return world_->options().sums == Sums::by_mpi; }

    /// Runs work(call) in the order of the stream.
    template <class Work>
    void execute(const shardkit::Call& what, const Stream& stream, const Work& work) const {
        auto& recorder = label().journal.recorder();
        if (!stream.is_inline()) { recorder.queue(what); }
        world_->execute(stream, what.where,
                        [world = world_, group = group_, label = &label(), what, work, &recorder](Lane& lane) {
                            Call call = world->call(lane, *group, label->axes, what);
                            recorder.begun(what);
                            work(call);
                            recorder.done(what);
                        });
    }
    /// Does the common work of all collectives, which move data as detail::collective says.
    template <class InOneHost, class ByMessages>
    void run(const shardkit::Call& what, const Stream& stream, const Shown& shown, const InOneHost& in_one_host,
             const ByMessages& by_messages) const {
        execute(what, stream, [shown, in_one_host, by_messages](Call& call) {
            detail::collective(call, shown, in_one_host, by_messages);
        });
    }
    /// Does the common work of messages between two ranks; `fill(message)` sets what to send and receive.
    template <class Fill>
    void pass(const shardkit::Call& what, const Stream& stream, const Fill& fill) const {
        execute(what, stream, [fill](const Call& call) {
            Message message(call);
            fill(message);
            message.pass();
        });
    }

    World* world_;
    Group* group_;
    shared::detail::GroupHandles::Handle handle_;
};

}  // namespace shardkit::mpi::detail

namespace shardkit::mpi {

inline Communicator World::communicator() {
    return Communicator(std::make_shared<const detail::RankVerbs>(*this, world_group(), "world"));
}

}  // namespace shardkit::mpi
