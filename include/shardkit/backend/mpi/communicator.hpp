// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include <shardkit/backend/host/host_stream.hpp>
#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/collective.hpp>
#include <shardkit/backend/mpi/copies.hpp>
#include <shardkit/backend/mpi/exchange.hpp>
#include <shardkit/backend/mpi/group.hpp>
#include <shardkit/backend/mpi/message.hpp>
#include <shardkit/backend/mpi/split.hpp>
#include <shardkit/backend/mpi/uneven.hpp>
#include <shardkit/backend/mpi/world.hpp>
#include <shardkit/backend/shared/verbs.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/moved.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/comm/traffic_log.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/memory/host_buffer.hpp>

namespace shardkit::mpi {

/// A rank's end of a group of MPI processes. `Sums` says how reductions add: Exchange (in rank order, with the bits
/// of the threads engine) or Staged (MPI's own). It is a cheap handle on a World, used only by its rank's thread.
/// The verbs' contracts are those of the functions in comm/, which also check the sizes. On an inline stream a verb
/// returns when the data is there. On the World's streams it runs while the rank goes on, and the next wait throws
/// its error. Errors: CommError with MPI's text when a call fails, on every rank when the ranks' calls disagree
/// (before any output is written), and after Options::timeout; PeerError when a needed rank has returned.
template <class Sums = Exchange>
class Communicator {
  public:
    using Stream = host::HostStream;

    explicit Communicator(World& world) : Communicator(world, world.world_group(), "world") {}

    std::size_t rank() const noexcept { return group_->rank; }
    std::size_t size() const noexcept { return group_->size(); }
    std::string_view axes() const noexcept { return label_->axes; }
    const engine::CommunicatorLabel& label() const noexcept { return *label_; }
    /// Returns the calls that this rank has given to its streams, over all its communicators. Does not wait.
    TrafficLog& traffic() const noexcept { return label_->journal.traffic(); }
    /// Returns the stream of verbs that are given none: they are done when they return.
    Stream compute_stream() const noexcept { return {}; }
    /// Returns a number that ranks of one host share.
    std::size_t host_of(std::size_t rank) const noexcept { return group_->homes[rank].host; }

    Communicator named(std::string_view axes) const { return Communicator(*world_, *group_, axes); }

    /// Allocates zeroed memory for n elements that the ranks of this host can read and write directly.
    template <Element T>
    HostBuffer<T> buffer(std::size_t n) const {
        return world_->buffer<T>(n);
    }
    /// Returns the peak bytes of this rank's buffers in its memory window; 0 if memory is not shared.
    std::size_t most_window_bytes() const {
        return world_->shares_memory() ? world_->host().window()->most_held() : 0;
    }

    Communicator split(std::size_t color, std::size_t key, std::string_view axes, const shardkit::Call& what) const {
        detail::Group* made = nullptr;
        run(what, Stream(), nothing,
            [&made, color, key](const detail::Call& call) { made = &detail::split_group(call, color, key); });
        return Communicator(*world_, *made, axes);
    }

    void barrier(const Stream& stream, const shardkit::Call& what) const {
        run(what, stream, nothing, [](const auto& way) {
            if constexpr (std::is_same_v<std::remove_cvref_t<decltype(way)>, detail::Call>) {
                // The comparison is a barrier already.
                if (way.channel.block != nullptr || way.world.options().compare_calls == CompareCalls::each_call) {
                    return;
                }
                way.lane.complete(way, "MPI_Ibarrier",
                                  [&](MPI_Request* request) { return MPI_Ibarrier(way.channel.comm, request); });
            }
        });
    }

    /// Compares the ranks' calls over the group, if Options::compare_calls is each_step and the comparison needs
    /// messages. It comes after all work given to the streams. Collective; the host waits.
    /// @throws CommError, on every rank, which names two of them and the first call in which they differ
    void compare_calls(SourceLocation where) const {
        if (world_->options().compare_calls != CompareCalls::each_step || !group_->compares_by_messages()) { return; }
        world_->execute(Stream(), where, [world = world_, group = group_, label = label_, where](detail::Lane& lane) {
            detail::Call call = world->call(lane, *group, label->axes, {{.verb = Verb::barrier}, 0, where});
            detail::compare_steps(call);
        });
    }

    template <Element T>
    engine::Moved all_gather(std::span<const T> shard, std::span<T> full, const Stream& stream,
                             const shardkit::Call& what) const {
        const detail::Way went = run(what, stream, {shard.data(), shard.size_bytes(), full.data()},
                                     [=](const auto& way) { detail::all_gather(way, shard.data(), full); });
        const std::size_t crossing = went == detail::Way::across ? group_->taken : group_->strangers();
        return {(size() - 1) * shard.size_bytes(), crossing * shard.size_bytes()};
    }

    template <Element In, Element Out>
    engine::Moved reduce_scatter(ReduceOp op, std::span<const In> full, std::span<Out> shard, const Stream& stream,
                                 const shardkit::Call& what) const {
        run_sum(what, stream, {full.data(), full.size_bytes(), nullptr}, [=](const auto& way) {
            if constexpr (in_one_host<decltype(way)>) {
                shared::detail::reduce_scatter(way, op, full, shard.data());
            } else {
                Sums::template reduce_scatter<In, Out>(way, op, full.data(), shard.size(), shard.data());
            }
        });
        return Sums::template moved_by_reduce_scatter<In, Out>(*group_, op, shard.size());
    }

    template <Element In, Element Out>
    engine::Moved all_reduce(ReduceOp op, std::span<const In> input, std::span<Out> output, const Stream& stream,
                             const shardkit::Call& what) const {
        const detail::Way went =
            run_sum(what, stream, {input.data(), input.size_bytes(), output.data()}, [=](const auto& way) {
                if constexpr (in_one_host<decltype(way)>) {
                    shared::detail::all_reduce<In>(way, op, input.size(), output.data());
                } else {
                    Sums::template all_reduce<In, Out>(way, op, input.data(), input.size(), output.data());
                }
            });
        return Sums::template moved_by_all_reduce<In, Out>(*world_, *group_, went, op, input.size());
    }

    template <Element T>
    engine::Moved broadcast(std::span<T> values, std::size_t root, const Stream& stream,
                            const shardkit::Call& what) const {
        const detail::Way went = run(what, stream, {values.data(), values.size_bytes(), values.data()},
                                     [=](const auto& way) { detail::broadcast(way, values, root); });
        if (rank() == root) { return 0; }
        const bool crosses = went == detail::Way::across ? group_->takes_from(root) : !group_->is_here(root);
        return {values.size_bytes(), crosses ? values.size_bytes() : 0};
    }

    template <Element T>
    void all_to_all(std::span<const T> sent, std::span<T> received, const Stream& stream,
                    const shardkit::Call& what) const {
        run(what, stream, {sent.data(), sent.size_bytes(), nullptr},
            [=](const auto& way) { detail::all_to_all(way, sent, received); });
    }

    template <Element T>
    void all_to_all_uneven(std::span<const T> sent, std::span<const std::size_t> send_counts, std::span<T> received,
                           std::span<const std::size_t> receive_counts, const Stream& stream,
                           const shardkit::Call& what) const {
        const detail::UnevenCounts counts{send_counts, receive_counts};
        execute(what, stream, [=](detail::Call& call) { detail::all_to_all_uneven(call, sent, received, counts); });
    }

    template <Element T>
    void send(std::span<const T> values, std::size_t to, const Stream& stream, const shardkit::Call& what) const {
        pass<T>(what, stream, [=](detail::Message<T>& message) { message.send(values, to); });
    }
    template <Element T>
    void receive(std::span<T> values, std::size_t from, const Stream& stream, const shardkit::Call& what) const {
        pass<T>(what, stream, [=](detail::Message<T>& message) { message.receive(values, from); });
    }
    template <Element T>
    void send_receive(std::span<const T> sent, std::size_t to, std::span<T> received, std::size_t from,
                      const Stream& stream, const shardkit::Call& what) const {
        pass<T>(what, stream, [=](detail::Message<T>& message) {
            message.send(sent, to);
            message.receive(received, from);
        });
    }

  private:
    Communicator(World& world, detail::Group& group, std::string_view axes)
        : world_(&world),
          group_(&group),
          handle_(group.handles.handle()),
          label_(&world.journal().label(axes, group.world_ranks)) {}

    /// The memory of this rank that peers read and write.
    struct Shown {
        const void* input = nullptr;
        std::size_t bytes = 0;
        void* output = nullptr;
    };
    static constexpr Shown nothing{};
    /// Whether a body's argument means that all ranks are in one host: a Round of ranks that see each other's memory,
    /// and no Across or Call.
    template <class Way>
    static constexpr bool in_one_host = std::is_same_v<std::remove_cvref_t<Way>, detail::Round>;

    /// Runs work(call) in the order of the stream.
    template <class Work>
    void execute(const shardkit::Call& what, const Stream& stream, const Work& work) const {
        auto& recorder = label_->journal.recorder();
        if (!stream.is_inline()) { recorder.queue(what); }
        world_->execute(stream, what.where,
                        [world = world_, group = group_, label = label_, what, work, &recorder](detail::Lane& lane) {
                            detail::Call call = world->call(lane, *group, label->axes, what);
                            recorder.begun(what);
                            work(call);
                            recorder.done(what);
                        });
    }
    /// Does the common work of all collectives; `body` moves the data, see detail::collective. Returns the way that
    /// was used or, for a call that may still run, the way that it uses if all ranks' memory is visible.
    template <class Body>
    detail::Way run(const shardkit::Call& what, const Stream& stream, const Shown& shown, const Body& body) const {
        detail::Way way = detail::expected_way(*group_, shown.bytes, detail::reads_peers<Body>);
        detail::Way* const went = stream.is_inline() ? &way : nullptr;
        execute(what, stream, [shown, body, went](detail::Call& call) {
            const detail::Way taken = detail::collective(call, shown.input, shown.bytes, shown.output, body);
            if (went != nullptr) { *went = taken; }
        });
        return way;
    }
    /// Does the common work of sums, some of which use MPI's reductions even within a host.
    template <class Body>
    detail::Way run_sum(const shardkit::Call& what, const Stream& stream, const Shown& shown,
                        const Body& body) const {
        if constexpr (Sums::reads_peers) {
            return run(what, stream, shown, body);
        } else {
            return run(what, stream, nothing, [body](const detail::Call& call) { body(call); });
        }
    }
    /// Does the common work of messages between two ranks; `fill(message)` sets what to send and receive.
    template <class T, class Fill>
    void pass(const shardkit::Call& what, const Stream& stream, const Fill& fill) const {
        execute(what, stream, [fill](const detail::Call& call) {
            detail::Message<T> message(call);
            fill(message);
            message.pass();
        });
    }

    World* world_;
    detail::Group* group_;
    shared::detail::GroupHandles::Handle handle_;
    const engine::CommunicatorLabel* label_;
};

}  // namespace shardkit::mpi
