// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <shardkit/backend/cuda/arena_buffer.hpp>
#include <shardkit/backend/cuda/device.hpp>
#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/cuda/memory_kind.hpp>
#include <shardkit/backend/cuda/pinned_buffer.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/borrowed_communicator.hpp>
#include <shardkit/backend/nccl/call.hpp>
#include <shardkit/backend/nccl/collectives.hpp>
#include <shardkit/backend/nccl/group_guard.hpp>
#include <shardkit/backend/nccl/reductions.hpp>
#include <shardkit/backend/nccl/said_of_call.hpp>
#include <shardkit/backend/nccl/split.hpp>
#include <shardkit/backend/nccl/verb_order.hpp>
#include <shardkit/backend/nccl/world.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/comm/traffic_log.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/policy/offload.hpp>
#include <shardkit/rank/context.hpp>

namespace shardkit::nccl {

/// A rank's end of a group of GPUs. `Kernels` are those of the engine (see Engine).
/// It is a cheap handle on a World, used only by its rank's thread. The verbs' contracts are those of the functions
/// in comm/, which also check the sizes; spans must be memory of the World's GPU. A verb returns once NCCL has
/// accepted it; the data moves when the stream reaches it. On one GPU, verbs run in the order in which they are
/// given, whatever their streams, except that those on the stream of reductions run beside the others.
/// Errors: CommError with NCCL's text when a call fails; from the next wait of the host, when a peer is gone or
/// Options::timeout has passed; std::invalid_argument for memory of the host or of another GPU. NCCL does not compare
/// calls: ranks that disagree about type, count or verb end in such an error, or in wrong values, unless
/// Options::compare_calls finds them.
template <class Kernels>
class Communicator {
    using Reduce = detail::Reductions<Kernels>;

  public:
    using Stream = gpu::TimelineRef;

    explicit Communicator(World& world) : Communicator(world, world.world_group(), "world") {}
    /// Uses a communicator of the user, over some of the World's ranks, for Context::adopt.
    /// @throws std::invalid_argument when it is on another GPU than the World or has more ranks
    Communicator(World& world, Borrow borrowed, std::string_view axes,
                 SourceLocation where = SourceLocation::current())
        : Communicator(world, world.borrow(borrowed, axes, where), axes) {}

    std::size_t rank() const noexcept { return group_->rank; }
    std::size_t size() const noexcept { return group_->size; }
    std::string_view axes() const noexcept { return label_->axes; }
    const engine::CommunicatorLabel& label() const noexcept { return *label_; }
    /// Returns NCCL's own handle, which the World owns; null after an abort, and for a group of one rank that was
    /// split off.
    ncclComm_t native() const noexcept { return world_->native(*group_); }
    /// Returns the calls that this rank has given to its streams, over all its communicators. Does not wait.
    TrafficLog& traffic() const noexcept { return label_->journal.traffic(); }
    Streams<Stream> streams() const noexcept { return world_->streams(); }
    /// Returns what plans need to know of the World and of sums over these ranks.
    engine::Traits traits() const noexcept {
        engine::Traits traits = world_->traits();
        traits.adds_16_bits = group_->sums != nullptr;
        return traits;
    }
    /// Returns the stream of verbs that are given none.
    Stream compute_stream() const noexcept { return streams().compute; }

    /// Allocates zeroed device memory in the World's arena.
    template <Element T>
    gpu::detail::ArenaBuffer<T> buffer(std::size_t size, SourceLocation where = SourceLocation::current()) const {
        return world_->template buffer<T>(size, where);
    }
    /// Allocates zeroed device memory for this rank's kernels alone, of a size that may differ between ranks.
    template <Element T>
    gpu::detail::ArenaBuffer<T> local_buffer(std::size_t size,
                                             SourceLocation where = SourceLocation::current()) const {
        return world_->template local_buffer<T>(size, where);
    }
    /// Allocates zeroed pinned memory of the host, which the rank's GPU can access too.
    /// @throws gpu::OutOfMemory; gpu::Error
    template <Element T>
    gpu::detail::PinnedBuffer<T> host_buffer(std::size_t size,
                                             SourceLocation where = SourceLocation::current()) const {
        return world_->template host_buffer<T>(size, where);
    }
    /// Returns the stream of copies between pinned memory and the GPU's that go one way.
    Stream copy_stream(engine::LinkWay way) const noexcept { return world_->copy_stream(way); }
    /// Copies between pinned memory and the GPU's in that stream.
    /// @throws gpu::Error
    void copy(std::span<const std::byte> from, std::span<std::byte> to, engine::LinkWay way) const {
        const gpu::detail::DeviceGuard guard(world_->device());
        gpu::detail::check(
            cudaMemcpyAsync(to.data(), from.data(), to.size(), cudaMemcpyDefault, copy_stream(way).native()),
            "cudaMemcpyAsync");
    }
    /// Returns the stream of functions that a thread of CUDA's calls on the host.
    Stream host_stream() const noexcept { return world_->host_stream(); }
    /// Calls function(object) in that stream. It must neither throw nor call CUDA.
    /// @throws gpu::Error
    void call_on_host(void (*function)(void*), void* object) const {
        const gpu::detail::DeviceGuard guard(world_->device());
        gpu::detail::check(cudaLaunchHostFunc(host_stream().native(), function, object), "cudaLaunchHostFunc");
    }
    /// Checks memory. @throws std::invalid_argument unless it is memory of this rank's GPU
    void require_memory(const void* data, std::size_t bytes, std::string_view what,
                        SourceLocation where = SourceLocation::current()) const {
        world_->require_memory(data, bytes, what, where);
    }
    /// Checks memory. @throws std::invalid_argument for memory of a GPU
    void require_host_memory(const void* data, std::size_t bytes, std::string_view what,
                             SourceLocation where = SourceLocation::current()) const {
        gpu::detail::require_host_memory(data, bytes, what, where);
    }

    /// Compares calls like shardkit::compare_calls, if Options::compare_calls asks for it.
    void compare_calls(SourceLocation where) const { world_->compare(*group_, where); }

    /// Makes verbs over these ranks on the stream of reductions run beside all others from now on, over an NCCL
    /// communicator of their own, which the first call makes. Does nothing without Options::separate_reductions, and
    /// for a single rank. Collective; the host waits.
    void separate_reductions(SourceLocation where = SourceLocation::current()) const {
        detail::separate_reductions(*world_, *group_, where);
    }

    /// Lets the memory in which reductions are made have up to `bytes`, as far as Options::most_staging_bytes allows:
    /// see there. Collective; the host waits where the memory grows.
    /// @throws gpu::OutOfMemory
    void reserve_staging(std::size_t bytes, SourceLocation where = SourceLocation::current()) const {
        world_->reserve_staging(bytes, where);
    }

    Communicator named(std::string_view axes) const { return Communicator(*world_, *group_, axes); }

    /// Splits the group; the host waits until all ranks are connected.
    Communicator split(std::size_t color, std::size_t key, std::string_view axes, const shardkit::Call& what) const {
        detail::Group* made = nullptr;
        const Stream stream = streams().communication;
        run(what, stream,
            [&](const detail::Call& call) { made = &detail::split_group(call, color, key, axes, stream); });
        return Communicator(*world_, *made, axes);
    }

    /// Makes later work of `stream` wait until every rank's stream has reached this point.
    void barrier(const Stream& stream, const shardkit::Call& what) const {
        run(what, stream, [&](const detail::Call& call) {
            if (size() == 1) { return; }
            void* const word = world_->staging(stream).data();
            world_->complete(call, "ncclAllReduce", [&](ncclComm_t comm) {
                return detail::all_reduce(detail::said_of(call, sizeof(std::uint32_t)), word, word, 1, ncclUint32,
                                          ncclMax, comm, stream.native());
            });
        });
    }

    template <Element T>
    void all_gather(std::span<const T> shard, std::span<T> full, const Stream& stream,
                    const shardkit::Call& what) const {
        require(full, "all_gather: full", what);
        if (!lies_in(shard, full)) { require(shard, "all_gather: shard", what); }
        run(what, stream, [&](const detail::Call& call) {
            const std::size_t k = shard.size();
            if (size() == 1) { return detail::copy_alone(call, shard.data(), k, full.data(), stream); }
            if (k > 0) {
                const detail::SaidOfCall said = detail::said_of_gather(call, full.size_bytes(), stream);
                world_->complete(call, "ncclAllGather", [&](ncclComm_t comm) {
                    return detail::all_gather(said, shard.data(), full.data(), k, detail::datatype<T>(), comm,
                                              stream.native());
                });
                detail::let_compute_wait(call, said);
            }
        });
    }

    template <Element In, Element Out>
    requires(Reduce::template possible<In, Out>) std::size_t
        reduce_scatter(ReduceOp op, std::span<const In> full, std::span<Out> shard, const Stream& stream,
                       const shardkit::Call& what)
    const {
        require(full, "reduce_scatter: full", what);
        if (!lies_in(shard, full)) { require(shard, "reduce_scatter: shard", what); }
        return run(what, stream, [&](const detail::Call& call) {
            return Reduce::reduce_scatter(call, stream, op, full.data(), shard.size(), shard.data());
        });
    }

    template <Element In, Element Out>
    requires(Reduce::template possible<In, Out>) std::size_t
        all_reduce(ReduceOp op, std::span<const In> input, std::span<Out> output, const Stream& stream,
                   const shardkit::Call& what)
    const {
        require(input, "all_reduce: input", what);
        if (!lies_in(output, input)) { require(output, "all_reduce: output", what); }
        return run(what, stream, [&](const detail::Call& call) {
            return Reduce::all_reduce(call, stream, op, input.data(), input.size(), output.data());
        });
    }

    template <Element T>
    void broadcast(std::span<T> values, std::size_t root, const Stream& stream, const shardkit::Call& what) const {
        require(values, "broadcast: values", what);
        run(what, stream, [&](const detail::Call& call) {
            if (!values.empty() && size() > 1) {
                world_->complete(call, "ncclBroadcast", [&](ncclComm_t comm) {
                    return detail::broadcast(detail::said_of(call, values.size_bytes()), values.data(), values.data(),
                                             values.size(), detail::datatype<T>(), static_cast<int>(root), comm,
                                             stream.native());
                });
            }
        });
    }

    template <Element T>
    void all_to_all(std::span<const T> sent, std::span<T> received, const Stream& stream,
                    const shardkit::Call& what) const {
        require(sent, "all_to_all: sent", what);
        require(received, "all_to_all: received", what);
        run(what, stream, [&](const detail::Call& call) {
            const std::size_t k = sent.size() / size();
            if (k == 0) { return; }
            if (size() == 1) { return detail::copy_alone(call, sent.data(), k, received.data(), stream); }
            detail::with_peers(
                call, stream, [&](std::size_t q) { return sent.subspan(q * k, k); },
                [&](std::size_t q) { return received.subspan(q * k, k); });
        });
    }

    template <Element T>
    void all_to_all_uneven(std::span<const T> sent, std::span<const std::size_t> send_counts, std::span<T> received,
                           std::span<const std::size_t> receive_counts, const Stream& stream,
                           const shardkit::Call& what) const {
        require(sent, "all_to_all_uneven: sent", what);
        require(received, "all_to_all_uneven: received", what);
        const auto exchange = [&](const detail::Call& call) {
            if (sent.empty() && received.empty()) { return; }
            if (size() == 1) { return detail::copy_alone(call, sent.data(), sent.size(), received.data(), stream); }
            std::size_t out = 0;
            std::size_t in = 0;
            const auto next = [](auto all, std::size_t& begin, std::size_t count) {
                return all.subspan(std::exchange(begin, begin + count), count);
            };
            detail::with_peers(
                call, stream, [&](std::size_t q) { return next(sent, out, send_counts[q]); },
                [&](std::size_t q) { return next(received, in, receive_counts[q]); });
        };
        run(what, stream, exchange, {send_counts, receive_counts});
    }

    /// Returns whether a reduction is one call of NCCL's, so that it can be started together with others.
    template <Element In, Element Out>
    static constexpr bool reduces_at_once(ReduceOp op) noexcept {
        return Reduce::template is_direct<In, Out>(op);
    }
    /// Lets NCCL start together what `body` calls over these ranks on `stream`, verbs that are one call of NCCL's
    /// each. They are called one by one where each call is compared, where sums may be exchanges, and over one rank.
    template <class Body>
    void start_together(const Stream& stream, const shardkit::Call& what, const Body& body) const {
        const Options& options = world_->options();
        const bool exchanges =
            what.signature.verb != Verb::all_gather && options.sums.exchange_from() != engine::never_exchanged;
        if (size() == 1 || exchanges || options.compare_calls == CompareCalls::each_call) { return body(); }
        const detail::Call call{*world_, detail::lane(*world_, *group_, stream), label_->axes, what.signature.verb,
                                what.where};
        const gpu::detail::DeviceGuard guard(world_->device(), what.where);
        const detail::VerbOrder::Turn turn = world_->enter(call, stream);  // which ends behind the group
        detail::GroupGuard together(call);
        together.collect();
        body();
        together.submit();
    }

    /// @throws CommError also for a message to this rank itself, which would wait forever
    template <Element T>
    void send(std::span<const T> values, std::size_t to, const Stream& stream, const shardkit::Call& what) const {
        require(values, "send: values", what);
        run(what, stream, [&](const detail::Call& call) {
            refuse_itself(call, to);
            if (values.empty()) { return; }
            world_->complete(call, "ncclSend", [&](ncclComm_t) { return send_to(call, values, to, stream); });
        });
    }
    /// @throws CommError also for a message from this rank itself, which would wait forever
    template <Element T>
    void receive(std::span<T> values, std::size_t from, const Stream& stream, const shardkit::Call& what) const {
        require(values, "receive: values", what);
        run(what, stream, [&](const detail::Call& call) {
            refuse_itself(call, from);
            if (values.empty()) { return; }
            world_->complete(call, "ncclRecv", [&](ncclComm_t) { return receive_from(call, values, from, stream); });
        });
    }
    /// @throws CommError also for a message to this rank itself that it does not receive, or receives with another
    /// size
    template <Element T>
    void send_receive(std::span<const T> sent, std::size_t to, std::span<T> received, std::size_t from,
                      const Stream& stream, const shardkit::Call& what) const {
        require(sent, "send_receive: sent", what);
        require(received, "send_receive: received", what);
        run(what, stream, [&](const detail::Call& call) {
            if ((to == rank()) != (from == rank())) { refuse_itself(call, rank()); }
            if (to == rank() && sent.size() != received.size()) {
                throw CommError("nccl", call.doing(),
                                shardkit::detail::concat("sends ", sent.size(), " elements to itself, receives ",
                                                         received.size()),
                                what.where);
            }
            if (size() == 1) { return detail::copy_alone(call, sent.data(), sent.size(), received.data(), stream); }
            detail::GroupGuard together(call);
            if (!sent.empty()) { together.add("ncclSend", send_to(call, sent, to, stream)); }
            if (!received.empty()) { together.add("ncclRecv", receive_from(call, received, from, stream)); }
            together.submit();
        });
    }

  private:
    Communicator(World& world, detail::Group& group, std::string_view axes)
        : world_(&world),
          group_(&group),
          handle_(group.handles.handle()),
          label_(&world.journal().label(axes, group.world_ranks())) {}

    /// Does the common work of all verbs; `body(call)` gives the work to the stream. Returns the result of `body`.
    /// `counts` are those of an uneven all-to-all.
    template <class Body>
    std::invoke_result_t<const Body&, const detail::Call&> run(
        const shardkit::Call& what, const Stream& stream, const Body& body,
        const shardkit::detail::UnevenCounts& counts = {}) const {
        const detail::Call call{*world_,      detail::lane(*world_, *group_, stream),
                                label_->axes, what.signature.verb,
                                what.where,   what.number == shardkit::Call::no_number ? 0 : what.number};
        const gpu::detail::DeviceGuard guard(world_->device(), what.where);
        if (group_->trace && what.signature.verb != Verb::send && what.signature.verb != Verb::receive) {
            world_->note(*group_, what, counts, stream);
        }
        label_->journal.recorder().leave_open(what);
        if (world_->collects()) { return body(call); }  // the group has a turn, and nothing may block inside of it
        const detail::VerbOrder::Turn turn = world_->enter(call, stream);
        return body(call);
    }
    template <class T>
    void require(std::span<T> values, std::string_view what, SourceLocation where) const {
        world_->require_memory(values.data(), values.size_bytes(), what, where);
    }
    /// Returns whether a verb is in place, so that `part` needs no check of its own.
    template <class Part, class Whole>
    static bool lies_in(std::span<Part> part, std::span<Whole> whole) noexcept {
        const auto* const begin = reinterpret_cast<const std::byte*>(whole.data());
        const auto* const at = reinterpret_cast<const std::byte*>(part.data());
        return at >= begin && at + part.size_bytes() <= begin + whole.size_bytes();
    }
    void refuse_itself(const detail::Call& call, std::size_t peer) const {
        if (peer == rank()) {
            throw CommError("nccl", call.doing(),
                            "a rank alone would wait for itself for ever; use send_receive to and from it",
                            call.where);
        }
    }

    template <class T>
    ncclResult_t send_to(const detail::Call& call, std::span<const T> values, std::size_t to,
                         const Stream& stream) const {
        return ncclSend(values.data(), values.size(), detail::datatype<T>(), static_cast<int>(to), call.group.comm,
                        stream.native());
    }
    template <class T>
    ncclResult_t receive_from(const detail::Call& call, std::span<T> values, std::size_t from,
                              const Stream& stream) const {
        return ncclRecv(values.data(), values.size(), detail::datatype<T>(), static_cast<int>(from), call.group.comm,
                        stream.native());
    }

    World* world_;
    detail::Group* group_;
    shared::detail::GroupHandles::Handle handle_;
    const engine::CommunicatorLabel* label_;
};

}  // namespace shardkit::nccl
