// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <shardkit/backend/cuda/arena_buffer.hpp>
#include <shardkit/backend/cuda/pinned_buffer.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/host/communicator.hpp>
#include <shardkit/backend/host/device_kernels.hpp>
#include <shardkit/backend/host/rank_order_reduction.hpp>
#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/communicator.hpp>
#include <shardkit/backend/nccl/world.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/comm/traffic_log.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/policy/offload.hpp>
#include <shardkit/rank/engine.hpp>
#include <shardkit/rank/streams.hpp>

namespace shardkit::nccl {

/// A Communicator as a cheap handle whose verbs know the element types, and whose streams and memory are CUDA's.
/// `Kernels` are those of the engine (see Engine).
template <class Kernels>
class TypedCommunicator {
    /// Whether the types can be reduced: floating-point types into floating-point types, others into their own.
    template <class In, class Out>
    static constexpr bool possible = (FloatingElement<In> && FloatingElement<Out>) || std::is_same_v<In, Out>;
    /// The Reducer of two types, with the engine's kernels.
    template <class In, class Out>
    static constexpr host::Reducer types = [] {
        host::Reducer types = host::detail::reducer_of<In, Out>;
        if constexpr (FloatingElement<In> && FloatingElement<Out>) {
            types.on_device = [](const AnyStream& stream, const engine::ReductionStep& step) {
                engine::Reduce<In, Out>{step}.template on<Kernels>(gpu::TimelineRef(stream));
            };
        }
        return types;
    }();

  public:
    using Stream = gpu::TimelineRef;

    explicit TypedCommunicator(std::shared_ptr<const Communicator> verbs) noexcept : verbs_(std::move(verbs)) {}
    explicit TypedCommunicator(World& world) : TypedCommunicator(std::make_shared<const Communicator>(world)) {}
    TypedCommunicator(World& world, Borrow borrowed, std::string_view axes,
                      SourceLocation where = SourceLocation::current())
        : TypedCommunicator(std::make_shared<const Communicator>(world, borrowed, axes, where)) {}

    const std::shared_ptr<const Communicator>& verbs() const noexcept { return verbs_; }
    std::size_t rank() const noexcept { return verbs_->rank(); }
    std::size_t size() const noexcept { return verbs_->size(); }
    std::string_view axes() const noexcept { return label().axes; }
    const engine::CommunicatorLabel& label() const noexcept { return verbs_->label(); }
    ncclComm_t native() const noexcept { return verbs_->native(); }
    TrafficLog& traffic() const noexcept { return label().journal.traffic(); }
    Streams<Stream> streams() const noexcept { return world().streams(); }
    engine::Traits traits() const noexcept { return verbs_->traits(); }
    Stream compute_stream() const noexcept { return streams().compute; }

    template <Element T>
    gpu::detail::ArenaBuffer<T> buffer(std::size_t size, SourceLocation where = SourceLocation::current()) const {
        return world().template buffer<T>(size, where);
    }
    template <Element T>
    gpu::detail::ArenaBuffer<T> local_buffer(std::size_t size,
                                             SourceLocation where = SourceLocation::current()) const {
        return world().template local_buffer<T>(size, where);
    }
    /// Allocates zeroed pinned memory of the host, which the rank's GPU can access too.
    /// @throws gpu::OutOfMemory; gpu::Error
    template <Element T>
    gpu::detail::PinnedBuffer<T> host_buffer(std::size_t size,
                                             SourceLocation where = SourceLocation::current()) const {
        return world().template host_buffer<T>(size, where);
    }
    /// Returns the stream of copies between pinned memory and the GPU's that go one way.
    Stream copy_stream(engine::LinkWay way) const noexcept { return world().copy_stream(way); }
    /// Returns the stream of functions that a thread of CUDA's calls on the host.
    Stream host_stream() const noexcept { return world().host_stream(); }
    void require_memory(const void* data, std::size_t bytes, std::string_view what,
                        SourceLocation where = SourceLocation::current()) const {
        verbs_->require_memory(data, bytes, what, where);
    }
    void require_host_memory(const void* data, std::size_t bytes, std::string_view what,
                             SourceLocation where = SourceLocation::current()) const {
        verbs_->require_host_memory(data, bytes, what, where);
    }

    void compare_calls(SourceLocation where) const { verbs_->compare_calls(where); }
    void separate_reductions(SourceLocation where = SourceLocation::current()) const {
        verbs_->separate_reductions(where);
    }
    void reserve_staging(std::size_t bytes, SourceLocation where = SourceLocation::current()) const {
        verbs_->reserve_staging(bytes, where);
    }
    TypedCommunicator named(std::string_view axes) const { return of(verbs_->named(axes)); }
    TypedCommunicator split(std::size_t color, std::size_t key, std::string_view axes, const Call& what) const {
        return of(verbs_->split(color, key, axes, what));
    }
    void barrier(const Stream& stream, const Call& what) const { verbs_->barrier(stream, what); }

    template <Element T>
    void all_gather(std::span<const T> shard, std::span<T> full, const Stream& stream, const Call& what) const {
        verbs_->all_gather(shard, full, stream, what);
    }
    template <Element In, Element Out>
    requires(possible<In, Out>) std::size_t
        reduce_scatter(ReduceOp op, std::span<const In> full, std::span<Out> shard, const Stream& stream,
                       const Call& what)
    const { return verbs_->reduce_scatter(types<In, Out>, op, full, shard, stream, what); }
    template <Element In, Element Out>
    requires(possible<In, Out>) std::size_t all_reduce(ReduceOp op, std::span<const In> input, std::span<Out> output,
                                                       const Stream& stream, const Call& what)
    const { return verbs_->all_reduce(types<In, Out>, op, input, output, stream, what); }
    template <Element T>
    void broadcast(std::span<T> values, std::size_t root, const Stream& stream, const Call& what) const {
        verbs_->broadcast(values, root, stream, what);
    }
    template <Element T>
    void all_to_all(std::span<const T> sent, std::span<T> received, const Stream& stream, const Call& what) const {
        verbs_->all_to_all(sent, received, stream, what);
    }
    template <Element T>
    void all_to_all_uneven(std::span<const T> sent, std::span<const std::size_t> send_counts, std::span<T> received,
                           std::span<const std::size_t> receive_counts, const Stream& stream,
                           const Call& what) const {
        verbs_->all_to_all_uneven(sent, send_counts, received, receive_counts, stream, what);
    }
    template <Element T>
    void send(std::span<const T> values, std::size_t to, const Stream& stream, const Call& what) const {
        verbs_->send(values, to, stream, what);
    }
    template <Element T>
    void receive(std::span<T> values, std::size_t from, const Stream& stream, const Call& what) const {
        verbs_->receive(values, from, stream, what);
    }
    template <Element T>
    void send_receive(std::span<const T> sent, std::size_t to, std::span<T> received, std::size_t from,
                      const Stream& stream, const Call& what) const {
        verbs_->send_receive(sent, to, received, from, stream, what);
    }

  private:
    World& world() const noexcept { return verbs_->world(); }
    static TypedCommunicator of(std::shared_ptr<const host::Verbs> verbs) {
        return TypedCommunicator(std::static_pointer_cast<const Communicator>(std::move(verbs)));
    }

    std::shared_ptr<const Communicator> verbs_;
};

}  // namespace shardkit::nccl

namespace shardkit::nccl::detail {

/// Returns a communicator over all ranks of a World, or one of the user's that is `borrowed` with a name, as an
/// engine's.
template <class EngineType, class... Borrowed>
typename EngineType::Communicator communicator_on(World& world, const Borrowed&... borrowed) {
    return typename EngineType::Communicator(std::make_shared<const Communicator>(world, borrowed...));
}

}  // namespace shardkit::nccl::detail
