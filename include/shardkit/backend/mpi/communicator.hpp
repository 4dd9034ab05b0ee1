// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include <shardkit/backend/host/copy_elements.hpp>
#include <shardkit/backend/host/host_stream.hpp>
#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/collective.hpp>
#include <shardkit/backend/mpi/exchange.hpp>
#include <shardkit/backend/mpi/group.hpp>
#include <shardkit/backend/mpi/message.hpp>
#include <shardkit/backend/mpi/split.hpp>
#include <shardkit/backend/mpi/world.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/comm/traffic_log.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>

namespace shardkit::mpi {

/// A rank's end of a group of MPI processes. `Sums` says how reductions add: Exchange (in rank order, the same bits
/// as the threads engine) or Staged (MPI's own).
///
/// A cheap handle on a World, used by its rank's thread only. The verbs' contracts are those of the functions in
/// comm/, which also check the sizes. On an inline stream a verb returns when the data is there; on the World's
/// communication stream it runs while the rank goes on, and an error is thrown by the next wait.
/// Errors: CommError with MPI's text when a call fails, on every rank when the ranks' calls disagree (before any
/// output is written), and after Options::timeout; PeerError when a rank that is needed has returned.
template <class Sums = Exchange>
class Communicator {
  public:
    using Stream = host::HostStream;

    explicit Communicator(World& world) : Communicator(world, world.world_group(), "world") {}

    std::size_t rank() const noexcept { return group_->rank; }
    std::size_t size() const noexcept { return group_->size(); }
    std::string_view axes() const noexcept { return label_->axes; }
    const CommunicatorLabel& label() const noexcept { return *label_; }
    /// What this rank has given to its streams, over all its communicators. Waits for nothing.
    TrafficLog& traffic() const noexcept { return label_->journal.traffic(); }

    Communicator named(std::string_view axes) const { return Communicator(*world_, *group_, axes); }

    Communicator split(std::size_t color, std::size_t key, std::string_view axes, const shardkit::Call& what) const {
        detail::Group* made = nullptr;
        run(what, Stream(),
            [&made, color, key](const detail::Call& call) { made = &detail::split_group(call, color, key); });
        return Communicator(*world_, *made, axes);
    }

    void barrier(const Stream& stream, const shardkit::Call& what) const {
        run(what, stream, [](const detail::Call& call) {
            if (call.world.options().compare_calls) { return; }  // a barrier already
            call.world.complete(call, "MPI_Ibarrier",
                                [&](MPI_Request* request) { return MPI_Ibarrier(call.group.comm, request); });
        });
    }

    template <Element T>
    void all_gather(std::span<const T> shard, std::span<T> full, const Stream& stream,
                    const shardkit::Call& what) const {
        gather(shard.data(), full, stream, what);
    }
    template <Element T>
    void all_gather_in_place(std::span<T> full, const Stream& stream, const shardkit::Call& what) const {
        gather(static_cast<const T*>(full.data() + rank() * (full.size() / size())), full, stream, what);
    }

    template <Element In, Element Out>
    std::size_t reduce_scatter(ReduceOp op, std::span<const In> full, std::span<Out> shard, const Stream& stream,
                               const shardkit::Call& what) const {
        return scatter(op, full, shard.data(), stream, what);
    }
    template <Element T>
    std::size_t reduce_scatter_in_place(ReduceOp op, std::span<T> full, const Stream& stream,
                                        const shardkit::Call& what) const {
        return scatter(op, std::span<const T>(full), full.data() + rank() * (full.size() / size()), stream, what);
    }

    template <Element In, Element Out>
    std::size_t all_reduce(ReduceOp op, std::span<const In> input, std::span<Out> output, const Stream& stream,
                           const shardkit::Call& what) const {
        run(what, stream, [=](const detail::Call& call) {
            Sums::template all_reduce<In, Out>(call, op, input.data(), input.size(), output.data());
        });
        return Sums::template moved_by_all_reduce<In, Out>(*world_, *group_, op, input.size());
    }
    template <Element T>
    std::size_t all_reduce_in_place(ReduceOp op, std::span<T> values, const Stream& stream,
                                    const shardkit::Call& what) const {
        return all_reduce(op, std::span<const T>(values), values, stream, what);
    }

    template <Element T>
    void broadcast(std::span<T> values, std::size_t root, const Stream& stream, const shardkit::Call& what) const {
        run(what, stream, [=](const detail::Call& call) {
            detail::for_each_piece(call, values.size(), [&](std::size_t at, int size) {
                call.world.complete(call, "MPI_Ibcast", [&](MPI_Request* request) {
                    return MPI_Ibcast(values.data() + at, size, detail::datatype<T>(), static_cast<int>(root),
                                      call.group.comm, request);
                });
            });
        });
    }

    template <Element T>
    void all_to_all(std::span<const T> sent, std::span<T> received, const Stream& stream,
                    const shardkit::Call& what) const {
        run(what, stream, [=](const detail::Call& call) {
            const std::size_t self = call.group.rank;
            const std::size_t k = sent.size() / call.group.size();
            if (k <= call.world.options().message_elements) {
                const int size = static_cast<int>(k);
                if (k > 0) {
                    call.world.complete(call, "MPI_Ialltoall", [&](MPI_Request* request) {
                        return MPI_Ialltoall(sent.data(), size, detail::datatype<T>(), received.data(), size,
                                             detail::datatype<T>(), call.group.comm, request);
                    });
                }
            } else {
                host::detail::copy_elements(sent.data() + self * k, received.data() + self * k, k);
                detail::exchange_pieces<T>(
                    call, k, [&](std::size_t to) { return sent.data() + to * k; },
                    [&](std::size_t from) { return received.data() + from * k; });
            }
        });
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
        : world_(&world), group_(&group), handle_(group.handles), label_(&world.journal().label(axes)) {}

    /// Everything that collectives have in common; `body(call)` moves the data.
    template <class Body>
    void run(const shardkit::Call& what, const Stream& stream, const Body& body) const {
        world_->execute(stream, what.where, [world = world_, group = group_, label = label_, what, body] {
            detail::Call call{*world, *group, label->axes, what.signature, what.where, what.subject};
            detail::enter(call);
            body(static_cast<const detail::Call&>(call));
        });
    }
    /// The same for messages, which only their two ends have in common; `fill(message)` says what goes where.
    template <class T, class Fill>
    void pass(const shardkit::Call& what, const Stream& stream, const Fill& fill) const {
        world_->execute(stream, what.where, [world = world_, group = group_, label = label_, what, fill] {
            const detail::Call call{*world, *group, label->axes, what.signature, what.where, what.subject};
            detail::Message<T> message(call);
            fill(message);
            message.pass();
        });
    }

    template <class T>
    void gather(const T* shard, std::span<T> full, const Stream& stream, const shardkit::Call& what) const {
        run(what, stream, [=, k = full.size() / size()](const detail::Call& call) {
            T* const own = full.data() + call.group.rank * k;
            if (k <= call.world.options().message_elements) {
                const int size = static_cast<int>(k);
                const void* const from = shard == own ? MPI_IN_PLACE : static_cast<const void*>(shard);
                if (k > 0) {
                    call.world.complete(call, "MPI_Iallgather", [&](MPI_Request* request) {
                        return MPI_Iallgather(from, size, detail::datatype<T>(), full.data(), size,
                                              detail::datatype<T>(), call.group.comm, request);
                    });
                }
            } else {
                if (shard != own) { host::detail::copy_elements(shard, own, k); }
                detail::exchange_pieces<T>(
                    call, k, [&](std::size_t) { return static_cast<const T*>(own); },
                    [&](std::size_t from) { return full.data() + from * k; });
            }
        });
    }

    template <class In, class Out>
    std::size_t scatter(ReduceOp op, std::span<const In> full, Out* shard, const Stream& stream,
                        const shardkit::Call& what) const {
        const std::size_t k = full.size() / size();
        run(what, stream, [=](const detail::Call& call) {
            Sums::template reduce_scatter<In, Out>(call, op, full.data(), k, shard);
        });
        return Sums::template moved_by_reduce_scatter<In, Out>(*group_, op, k);
    }

    World* world_;
    detail::Group* group_;
    std::shared_ptr<const char> handle_;
    const CommunicatorLabel* label_;
};

}  // namespace shardkit::mpi
