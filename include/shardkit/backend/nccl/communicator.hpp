// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <shardkit/backend/cuda/arena_buffer.hpp>
#include <shardkit/backend/cuda/device.hpp>
#include <shardkit/backend/cuda/memory_kind.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/borrow.hpp>
#include <shardkit/backend/nccl/call.hpp>
#include <shardkit/backend/nccl/datatype.hpp>
#include <shardkit/backend/nccl/group_guard.hpp>
#include <shardkit/backend/nccl/reductions.hpp>
#include <shardkit/backend/nccl/split.hpp>
#include <shardkit/backend/nccl/world.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/comm/traffic_log.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/rank/context.hpp>

namespace shardkit::nccl {

/// A rank's end of a group of GPUs. `Kernels` are the engine's (see Engine).
///
/// A cheap handle on a World, used by its rank's thread only. The verbs' contracts are those of the functions in
/// comm/, which also check the sizes; spans are memory of the World's GPU. A verb returns once NCCL has taken it; the
/// data moves when the stream gets there. On one GPU verbs run in the order in which they are given, whatever their
/// streams.
/// Errors: CommError with NCCL's text when a call fails, and, from the next wait of the host, when a peer is gone or
/// later than Options::timeout; std::invalid_argument for memory of the host or of another GPU. NCCL compares no
/// calls: ranks that disagree about type, count or verb end in such an error, or in wrong values.
template <class Kernels>
class Communicator {
    using Reduce = Reductions<Kernels>;

  public:
    using Stream = gpu::TimelineRef;

    explicit Communicator(World& world) : Communicator(world, world.world_group(), "world") {}
    /// A communicator that the user has already, over some of the World's ranks; to be handed to Context::adopt.
    /// @throws std::invalid_argument when it is of another GPU than the World or has more ranks
    Communicator(World& world, Borrow borrowed, std::string_view axes,
                 SourceLocation where = SourceLocation::current())
        : Communicator(world, world.borrow(borrowed, axes, where), axes) {}

    std::size_t rank() const noexcept { return group_->rank; }
    std::size_t size() const noexcept { return group_->size; }
    std::string_view axes() const noexcept { return *axes_; }
    /// NCCL's own handle, which the World keeps; null once it was aborted.
    ncclComm_t native() const noexcept { return group_->comm; }
    /// What this rank has given to its streams, over all its communicators. Waits for nothing.
    TrafficLog& traffic() const noexcept { return world_->traffic(); }
    Streams<Stream> streams() const noexcept { return world_->streams(); }

    /// Zeroed device memory, which the World's arena keeps.
    template <Element T>
    gpu::ArenaBuffer<T> buffer(std::size_t size, SourceLocation where = SourceLocation::current()) const {
        return world_->template buffer<T>(size, where);
    }
    /// @throws std::invalid_argument unless it is memory of this rank's GPU
    void require_memory(const void* data, std::size_t bytes, std::string_view what,
                        SourceLocation where = SourceLocation::current()) const {
        world_->require_memory(data, bytes, what, where);
    }
    /// @throws std::invalid_argument for memory of a GPU
    void require_host_memory(const void* data, std::size_t bytes, std::string_view what,
                             SourceLocation where = SourceLocation::current()) const {
        gpu::require_host_memory(data, bytes, what, where);
    }

    Communicator named(std::string_view axes) const { return Communicator(*world_, *group_, axes); }

    /// The host waits until all ranks are connected.
    /// @throws std::invalid_argument when color is 2^63 or more
    Communicator split(std::size_t color, std::size_t key, std::string_view axes,
                       SourceLocation where = SourceLocation::current()) const {
        if (color >> 63U != 0) {
            throw_invalid_argument(where, "split over ", *axes_, ": color ", color, ", expected less than 2^63");
        }
        Group* made = nullptr;
        constexpr std::size_t wish = wish_words * sizeof(std::uint64_t);
        const Stream stream = streams().communication;
        run(Verb::split, stream, size() * wish, where, [&](const Call& call) {
            made = &split_group(call, color, key, axes, stream);
            return (size() - 1) * wish;
        });
        return Communicator(*world_, *made, axes);
    }

    /// Work that is given to `stream` after it runs when every rank's stream has got there.
    void barrier(const Stream& stream, SourceLocation where = SourceLocation::current()) const {
        run(Verb::barrier, stream, 0, where, [&](const Call& call) {
            void* const word = world_->staging().data();
            world_->complete(call, "ncclAllReduce",
                             ncclAllReduce(word, word, 1, ncclUint32, ncclMax, group_->comm, stream.native()));
            return std::size_t{0};
        });
    }

    template <Element T>
    void all_gather(std::span<const T> shard, std::span<T> full, const Stream& stream, SourceLocation where) const {
        require(shard, "all_gather: shard", where);
        require(full, "all_gather: full", where);
        gather(shard.data(), shard.size(), full, stream, where);
    }
    template <Element T>
    void all_gather_in_place(std::span<T> full, const Stream& stream, SourceLocation where) const {
        require(full, "all_gather_in_place: full", where);
        const std::size_t k = full.size() / size();
        gather(static_cast<const T*>(full.data() + rank() * k), k, full, stream, where);
    }

    template <Element In, Element Out>
    requires(Reduce::template possible<In, Out>) void reduce_scatter(ReduceOp op, std::span<const In> full,
                                                                     std::span<Out> shard, const Stream& stream,
                                                                     SourceLocation where) const {
        require(full, "reduce_scatter: full", where);
        require(shard, "reduce_scatter: shard", where);
        scatter(op, full, shard.data(), stream, where);
    }
    template <Element T>
    void reduce_scatter_in_place(ReduceOp op, std::span<T> full, const Stream& stream, SourceLocation where) const {
        require(full, "reduce_scatter_in_place: full", where);
        scatter(op, std::span<const T>(full), full.data() + rank() * (full.size() / size()), stream, where);
    }

    template <Element In, Element Out>
    requires(Reduce::template possible<In, Out>) void all_reduce(ReduceOp op, std::span<const In> input,
                                                                 std::span<Out> output, const Stream& stream,
                                                                 SourceLocation where) const {
        require(input, "all_reduce: input", where);
        require(output, "all_reduce: output", where);
        run(Verb::all_reduce, stream, input.size_bytes(), where, [&](const Call& call) {
            return Reduce::all_reduce(call, stream, op, input.data(), input.size(), output.data());
        });
    }
    template <Element T>
    void all_reduce_in_place(ReduceOp op, std::span<T> values, const Stream& stream, SourceLocation where) const {
        all_reduce(op, std::span<const T>(values), values, stream, where);
    }

    template <Element T>
    void broadcast(std::span<T> values, std::size_t root, const Stream& stream, SourceLocation where) const {
        require(values, "broadcast: values", where);
        run(Verb::broadcast, stream, values.size_bytes(), where, [&](const Call& call) {
            if (!values.empty()) {
                world_->complete(call, "ncclBroadcast",
                                 ncclBroadcast(values.data(), values.data(), values.size(), datatype<T>(),
                                               static_cast<int>(root), group_->comm, stream.native()));
            }
            return rank() == root ? 0 : values.size_bytes();
        });
    }

    template <Element T>
    void all_to_all(std::span<const T> sent, std::span<T> received, const Stream& stream,
                    SourceLocation where) const {
        require(sent, "all_to_all: sent", where);
        require(received, "all_to_all: received", where);
        run(Verb::all_to_all, stream, sent.size_bytes(), where, [&](const Call& call) {
            const std::size_t k = sent.size() / size();
            if (k == 0) { return std::size_t{0}; }
            GroupGuard together(call);
            for (std::size_t q = 0; q < size(); ++q) {
                together.add("ncclSend", send_to(sent.subspan(q * k, k), q, stream));
                together.add("ncclRecv", receive_from(received.subspan(q * k, k), q, stream));
            }
            together.submit();
            return (size() - 1) * k * sizeof(T);
        });
    }

    /// @throws CommError also for a message to this rank itself, which could only wait for ever
    template <Element T>
    void send(std::span<const T> values, std::size_t to, const Stream& stream, SourceLocation where) const {
        require(values, "send: values", where);
        pass(Verb::send, values.size_bytes(), to, stream, where, [&](const Call& call) {
            refuse_itself(call, to);
            if (!values.empty()) { world_->complete(call, "ncclSend", send_to(values, to, stream)); }
        });
    }
    /// @throws CommError also for a message from this rank itself, which could only wait for ever
    template <Element T>
    void receive(std::span<T> values, std::size_t from, const Stream& stream, SourceLocation where) const {
        require(values, "receive: values", where);
        pass(Verb::receive, values.size_bytes(), from, stream, where, [&](const Call& call) {
            refuse_itself(call, from);
            if (!values.empty()) { world_->complete(call, "ncclRecv", receive_from(values, from, stream)); }
        });
    }
    /// @throws CommError also for a message to this rank itself that it does not receive, or not at that size
    template <Element T>
    void send_receive(std::span<const T> sent, std::size_t to, std::span<T> received, std::size_t from,
                      const Stream& stream, SourceLocation where) const {
        require(sent, "send_receive: sent", where);
        require(received, "send_receive: received", where);
        pass(Verb::send, sent.size_bytes(), to, stream, where, [&](const Call& call) {
            if ((to == rank()) != (from == rank())) { refuse_itself(call, rank()); }
            if (to == rank() && sent.size() != received.size()) {
                throw CommError("nccl", call.doing(),
                                shardkit::detail::concat("sends ", sent.size(), " elements to itself, receives ",
                                                         received.size()),
                                where);
            }
            GroupGuard together(call);
            if (!sent.empty()) { together.add("ncclSend", send_to(sent, to, stream)); }
            if (!received.empty()) { together.add("ncclRecv", receive_from(received, from, stream)); }
            together.submit();
        });
        record(Verb::receive, received.size_bytes(), from == rank() ? 0 : received.size_bytes());
    }

  private:
    Communicator(World& world, Group& group, std::string_view axes)
        : world_(&world),
          group_(&group),
          axes_(&world.label(axes)),
          first_row_(world.traffic().add_communicator(axes)) {}

    /// Everything that verbs have in common; `body(call)` enqueues and returns the bytes that go between this rank
    /// and its peers.
    template <class Body>
    void run(Verb verb, const Stream& stream, std::size_t payload, SourceLocation where, const Body& body) const {
        const Call call{*world_, *group_, *axes_, verb, where};
        const gpu::DeviceGuard guard(world_->device(), where);
        world_->enter(call, stream);
        record(verb, payload, body(call));
    }
    template <class Body>
    void pass(Verb verb, std::size_t bytes, std::size_t peer, const Stream& stream, SourceLocation where,
              const Body& body) const {
        run(verb, stream, bytes, where, [&](const Call& call) {
            body(call);
            return peer == rank() ? 0 : bytes;
        });
    }
    void record(Verb verb, std::size_t payload, std::size_t moved) const noexcept {
        if (size() > 1) { traffic().record(first_row_, verb, ByteCount(payload), ByteCount(moved)); }
    }
    template <class T>
    void require(std::span<T> values, std::string_view what, SourceLocation where) const {
        world_->require_memory(values.data(), values.size_bytes(), what, where);
    }
    void refuse_itself(const Call& call, std::size_t peer) const {
        if (peer == rank()) {
            throw CommError("nccl", call.doing(),
                            "a rank alone would wait for itself for ever; use send_receive to and from it",
                            call.where);
        }
    }

    template <class T>
    ncclResult_t send_to(std::span<const T> values, std::size_t to, const Stream& stream) const {
        return ncclSend(values.data(), values.size(), datatype<T>(), static_cast<int>(to), group_->comm,
                        stream.native());
    }
    template <class T>
    ncclResult_t receive_from(std::span<T> values, std::size_t from, const Stream& stream) const {
        return ncclRecv(values.data(), values.size(), datatype<T>(), static_cast<int>(from), group_->comm,
                        stream.native());
    }

    template <class T>
    void gather(const T* shard, std::size_t k, std::span<T> full, const Stream& stream, SourceLocation where) const {
        run(Verb::all_gather, stream, full.size_bytes(), where, [&](const Call& call) {
            if (k > 0) {
                world_->complete(call, "ncclAllGather",
                                 ncclAllGather(shard, full.data(), k, datatype<T>(), group_->comm, stream.native()));
            }
            return (size() - 1) * k * sizeof(T);
        });
    }
    template <class In, class Out>
    void scatter(ReduceOp op, std::span<const In> full, Out* shard, const Stream& stream,
                 SourceLocation where) const {
        run(Verb::reduce_scatter, stream, full.size_bytes(), where, [&](const Call& call) {
            return Reduce::reduce_scatter(call, stream, op, full.data(), full.size() / size(), shard);
        });
    }

    World* world_;
    Group* group_;
    const std::string* axes_;
    std::size_t first_row_ = 0;
};

}  // namespace shardkit::nccl
