// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <shardkit/backend/cuda/device.hpp>
#include <shardkit/backend/cuda/memory_kind.hpp>
#include <shardkit/backend/cuda/pinned_copies.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/host/memory.hpp>
#include <shardkit/backend/host/verbs.hpp>
#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/borrowed_communicator.hpp>
#include <shardkit/backend/nccl/call.hpp>
#include <shardkit/backend/nccl/collectives.hpp>
#include <shardkit/backend/nccl/group_guard.hpp>
#include <shardkit/backend/nccl/reductions.hpp>
#include <shardkit/backend/nccl/said_of_call.hpp>
#include <shardkit/backend/nccl/split.hpp>
#include <shardkit/backend/nccl/verb_order.hpp>
#include <shardkit/backend/nccl/world_state.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/comm/streams.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/memory/memory_copies.hpp>
#include <shardkit/policy/offload.hpp>
#include <shardkit/verbs/communicator.hpp>
#include <shardkit/verbs/verb_memory.hpp>

namespace shardkit::nccl {

/// A rank's end of a group of GPUs, which its World outlives; used only by its rank's thread. The verbs' contracts
/// are those of the functions in verbs/, which also check the sizes; memory must be that of the World's GPU. A verb
/// returns once NCCL has accepted it; the data moves when the stream reaches it. On one GPU, verbs run in the order
/// in which they are given, whatever their streams, except that those on the stream of reductions run beside the
/// others.
/// Errors: CommError with NCCL's text when a call fails; from the next wait of the host, when a peer is gone or
/// Options::timeout has passed; std::invalid_argument for memory of the host or of another GPU. NCCL does not compare
/// calls: ranks that disagree about type, count or verb end in such an error, or in wrong values, unless
/// Options::compare_calls finds them.
class Communicator final : public host::Verbs, public host::DeviceMemory {
    using Memory = host::Memory;
    using ConstMemory = host::ConstMemory;

  public:
    Communicator(detail::WorldState& world, detail::Group& group, std::string_view axes)
        : Verbs(group.rank, group.size, world.journal().label(axes, group.world_ranks())),
          world_(world),
          group_(group),
          handle_(group.handles.handle()) {}

    /// Returns NCCL's own handle, which the World owns; null after an abort, and for a group of one rank that was
    /// split off.
    ncclComm_t native() const noexcept { return world_.native(group_); }

    std::string_view engine_name() const noexcept override { return "nccl"; }
    /// Returns what plans need to know of the World and of sums over these ranks.
    engine::Traits traits() const noexcept override {
        engine::Traits traits = world_.traits();
        traits.adds_16_bits = group_.sums != nullptr;
        return traits;
    }
    Streams streams() const noexcept override { return world_.streams(); }
    std::shared_ptr<void> place(std::size_t bytes) const override { return placed(world_.buffer(bytes)); }
    std::shared_ptr<void> place_local(std::size_t bytes) const override { return placed(world_.local_buffer(bytes)); }
    std::size_t most_placed_bytes() const override { return world_.most_bytes(); }

    const host::DeviceMemory* device_memory() const noexcept override { return this; }
    void require_memory(const void* data, std::size_t bytes, std::string_view what,
                        SourceLocation where) const override {
        world_.require_memory(data, bytes, what, where);
    }
    void require_host_memory(const void* data, std::size_t bytes, std::string_view what,
                             SourceLocation where) const override {
        gpu::detail::require_host_memory(data, bytes, what, where);
    }
    std::unique_ptr<engine::MemoryCopies> memory_copies(const Stream& after, SourceLocation where) const override {
        return std::make_unique<gpu::detail::PinnedCopies>(on(after, where), where);
    }
    std::shared_ptr<void> place_on_host(std::size_t bytes) const override {
        return placed(world_.host_buffer(bytes));
    }
    Stream copy_stream(engine::LinkWay way) const noexcept override { return world_.copy_stream(way); }
    Stream host_stream() const noexcept override { return world_.host_stream(); }

    /// Compares calls like shardkit::compare_calls, if Options::compare_calls asks for it.
    void compare_calls(SourceLocation where) const override { world_.compare(group_, where); }
    /// Makes verbs over these ranks on the stream of reductions run beside all others from now on, over an NCCL
    /// communicator of their own, which the first call makes. Does nothing without Options::separate_reductions, and
    /// for a single rank. Collective; the host waits.
    void separate_reductions(SourceLocation where) const override {
        detail::separate_reductions(world_, group_, where);
    }
    /// Lets the memory in which reductions are made have up to `bytes`, as far as Options::most_staging_bytes allows:
    /// see there. Collective; the host waits where the memory grows.
    /// @throws gpu::OutOfMemory
    void reserve_staging(std::size_t bytes, SourceLocation where) const override {
        world_.reserve_staging(bytes, where);
    }

    std::shared_ptr<const Verbs> named(std::string_view axes) const override { return end_of(group_, axes); }
    /// Splits the group; the host waits until all ranks are connected.
    std::shared_ptr<const Verbs> split(std::size_t color, std::size_t key, std::string_view axes,
                                       const shardkit::Call& what) const override {
        detail::Group* made = nullptr;
        run(what, world_.streams().communication,
            [&](const detail::Call& call) { made = &detail::split_group(call, color, key, axes); });
        return end_of(*made, axes);
    }

    /// Makes later work of the stream wait until every rank's stream has reached this point.
    void barrier(const Stream& given, const shardkit::Call& what) const override {
        run(what, given, [&](const detail::Call& call) {
            if (size() == 1) { return; }
            void* const word = world_.staging(call.stream).data();
            world_.complete(call, "ncclAllReduce", [&](ncclComm_t comm) {
                return detail::all_reduce(detail::said_of(call, sizeof(std::uint32_t)), word, word, 1, ncclUint32,
                                          ncclMax, comm, call.stream.native());
            });
        });
    }

    std::uint64_t all_gather(ConstMemory shard, Memory full, const Stream& given,
                             const shardkit::Call& what) const override {
        require(full, "all_gather: full", what);
        if (!lies_in(shard, full)) { require(shard, "all_gather: shard", what); }
        run(what, given, [&](const detail::Call& call) {
            if (size() == 1) { return detail::copy_alone(call, shard, full, call.stream); }
            if (shard.count > 0) {
                const ElementType type = what.signature.in;
                const detail::SaidOfCall said = detail::said_of_gather(call, full.bytes());
                world_.complete(call, "ncclAllGather", [&](ncclComm_t comm) {
                    return detail::all_gather(said, shard.at, full.at, shard.bytes() / size_of(type),
                                              detail::datatype(type), comm, call.stream.native());
                });
                detail::let_compute_wait(call, said);
            }
        });
        return shardkit::detail::part_from_peers(full.bytes(), size());
    }

    std::uint64_t reduce_scatter(const host::Reducer& types, ReduceOp op, ConstMemory full, Memory shard,
                                 const Stream& given, const shardkit::Call& what) const override {
        require(full, "reduce_scatter: full", what);
        if (!lies_in(shard, full)) { require(shard, "reduce_scatter: shard", what); }
        return reduced(types, op, given, what,
                       [&](const detail::Reduction& reduction) { return reduction.reduce_scatter(full, shard); });
    }
    std::uint64_t all_reduce(const host::Reducer& types, ReduceOp op, ConstMemory input, Memory output,
                             const Stream& given, const shardkit::Call& what) const override {
        require(input, "all_reduce: input", what);
        if (!lies_in(output, input)) { require(output, "all_reduce: output", what); }
        return reduced(types, op, given, what,
                       [&](const detail::Reduction& reduction) { return reduction.all_reduce(input, output); });
    }

    std::uint64_t broadcast(Memory values, std::size_t root, const Stream& given,
                            const shardkit::Call& what) const override {
        require(values, "broadcast: values", what);
        run(what, given, [&](const detail::Call& call) {
            if (values.count > 0 && size() > 1) {
                const ElementType type = what.signature.in;
                world_.complete(call, "ncclBroadcast", [&](ncclComm_t comm) {
                    return detail::broadcast(detail::said_of(call, values.bytes()), values.at, values.at,
                                             values.bytes() / size_of(type), detail::datatype(type),
                                             static_cast<int>(root), comm, call.stream.native());
                });
            }
        });
        return shardkit::detail::bytes_with_peer(*this, root, values.bytes());
    }

    std::uint64_t all_to_all(ConstMemory sent, Memory received, const Stream& given,
                             const shardkit::Call& what) const override {
        require(sent, "all_to_all: sent", what);
        require(received, "all_to_all: received", what);
        run(what, given, [&](const detail::Call& call) {
            const std::size_t k = sent.count / size();
            if (k == 0) { return; }
            if (size() == 1) { return detail::copy_alone(call, sent, received, call.stream); }
            detail::with_peers(
                call, what.signature.in, [&](std::size_t q) { return sent.part(q * k, k); },
                [&](std::size_t q) { return received.part(q * k, k); });
        });
        return shardkit::detail::part_from_peers(received.bytes(), size());
    }

    void all_to_all_uneven(ConstMemory sent, std::span<const std::size_t> send_counts, Memory received,
                           std::span<const std::size_t> receive_counts, const Stream& given,
                           const shardkit::Call& what) const override {
        require(sent, "all_to_all_uneven: sent", what);
        require(received, "all_to_all_uneven: received", what);
        const auto exchange = [&](const detail::Call& call) {
            if (sent.count == 0 && received.count == 0) { return; }
            if (size() == 1) { return detail::copy_alone(call, sent, received, call.stream); }
            std::size_t out = 0;
            std::size_t in = 0;
            const auto next = [](auto all, std::size_t& begin, std::size_t count) {
                return all.part(std::exchange(begin, begin + count), count);
            };
            detail::with_peers(
                call, what.signature.in, [&](std::size_t q) { return next(sent, out, send_counts[q]); },
                [&](std::size_t q) { return next(received, in, receive_counts[q]); });
        };
        run(what, given, exchange, {send_counts, receive_counts});
    }

    /// @throws CommError also for a message to this rank itself, which would wait forever
    void send(ConstMemory values, std::size_t to, const Stream& given, const shardkit::Call& what) const override {
        require(values, "send: values", what);
        run(what, given, [&](const detail::Call& call) {
            refuse_itself(call, to);
            if (values.count == 0) { return; }
            world_.complete(call, "ncclSend",
                            [&](ncclComm_t) { return detail::send_to(call, values, what.signature.in, to); });
        });
    }
    /// @throws CommError also for a message from this rank itself, which would wait forever
    void receive(Memory values, std::size_t from, const Stream& given, const shardkit::Call& what) const override {
        require(values, "receive: values", what);
        run(what, given, [&](const detail::Call& call) {
            refuse_itself(call, from);
            if (values.count == 0) { return; }
            world_.complete(call, "ncclRecv",
                            [&](ncclComm_t) { return detail::receive_from(call, values, what.signature.in, from); });
        });
    }
    /// @throws CommError also for a message to this rank itself that it does not receive, or receives with another
    /// size
    void send_receive(ConstMemory sent, std::size_t to, Memory received, std::size_t from, const Stream& given,
                      const shardkit::Call& what) const override {
        require(sent, "send_receive: sent", what);
        require(received, "send_receive: received", what);
        run(what, given, [&](const detail::Call& call) {
            if ((to == rank()) != (from == rank())) { refuse_itself(call, rank()); }
            if (to == rank() && sent.count != received.count) {
                throw CommError(
                    "nccl", call.doing(),
                    shardkit::detail::concat("sends ", sent.count, " elements to itself, receives ", received.count),
                    what.where);
            }
            if (size() == 1) { return detail::copy_alone(call, sent, received, call.stream); }
            const ElementType type = what.signature.in;
            detail::GroupGuard together(call);
            if (sent.count > 0) { together.add("ncclSend", detail::send_to(call, sent, type, to)); }
            if (received.count > 0) { together.add("ncclRecv", detail::receive_from(call, received, type, from)); }
            together.submit();
        });
    }

  private:
    std::shared_ptr<const Verbs> end_of(detail::Group& group, std::string_view axes) const {
        return std::make_shared<const Communicator>(world_, group, axes);
    }

    /// A default stream is that of verbs that are given none.
    gpu::TimelineRef on(const Stream& stream, SourceLocation where) const {
        return gpu::TimelineRef(stream.is_inline() ? world_.streams().compute : stream, where);
    }
    template <class Buffer>
    static std::shared_ptr<void> placed(Buffer memory) {
        auto kept = std::make_shared<Buffer>(std::move(memory));
        auto* const data = kept->data();
        return std::shared_ptr<void>(std::move(kept), data);
    }

    /// Does the common work of all verbs; `body(call)` gives the work to the stream. Returns the result of `body`.
    /// `counts` are those of an uneven all-to-all.
    template <class Body>
    std::invoke_result_t<const Body&, const detail::Call&> run(
        const shardkit::Call& what, const Stream& given, const Body& body,
        const shardkit::detail::UnevenCounts& counts = {}) const {
        const gpu::TimelineRef stream = on(given, what.where);
        const std::uint64_t number = what.number == shardkit::Call::no_number ? 0 : what.number;
        const detail::Call call{
            world_, detail::lane(world_, group_, stream), label().axes, what.signature.verb, what.where, stream,
            number};
        const gpu::detail::DeviceGuard guard(world_.device(), what.where);
        if (group_.trace && what.signature.verb != Verb::send && what.signature.verb != Verb::receive) {
            world_.note(group_, what, counts, stream);
        }
        label().journal.recorder().leave_open(what);
        const detail::VerbOrder::Turn turn = world_.enter(call);
        return body(call);
    }
    template <class Reduce>
    std::uint64_t reduced(const host::Reducer& types, ReduceOp op, const Stream& given, const shardkit::Call& what,
                          const Reduce& reduce) const {
        if (!types.one_type && types.on_device == nullptr) {
            throw_invalid_argument(what.where, name(what.signature.verb), ": ", name(types.in), " into ",
                                   name(types.out), ", expected one type, or two of floating-point elements");
        }
        return run(what, given, [&](const detail::Call& call) { return reduce(detail::Reduction(call, types, op)); });
    }
    void require(ConstMemory values, std::string_view what, SourceLocation where) const {
        world_.require_memory(values.at, values.bytes(), what, where);
    }
    /// Returns whether a verb is in place, so that `part` needs no check of its own.
    static bool lies_in(ConstMemory part, ConstMemory whole) noexcept {
        return part.at >= whole.at && part.at + part.bytes() <= whole.at + whole.bytes();
    }
    void refuse_itself(const detail::Call& call, std::size_t peer) const {
        if (peer == rank()) {
            throw CommError("nccl", call.doing(),
                            "a rank alone would wait for itself for ever; use send_receive to and from it",
                            call.where);
        }
    }

    detail::WorldState& world_;
    detail::Group& group_;
    shared::detail::GroupHandles::Handle handle_;
};

}  // namespace shardkit::nccl
