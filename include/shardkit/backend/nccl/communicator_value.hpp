// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>

#include <shardkit/backend/cuda/arena_buffer.hpp>
#include <shardkit/backend/cuda/pinned_copies.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/backend/host/communicator.hpp>
#include <shardkit/backend/host/verbs.hpp>
#include <shardkit/backend/nccl/communicator.hpp>
#include <shardkit/backend/nccl/world.hpp>
#include <shardkit/comm/any_stream.hpp>
#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/comm/verb_memory.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/memory/memory_copies.hpp>
#include <shardkit/rank/streams.hpp>

namespace shardkit::nccl::detail {

/// NCCL's verbs without types, as ranks of DefaultEngine and files of the compiled form call them: over memory of the
/// GPU, in the order of a stream of the rank's.
template <class Kernels>
class VerbsWithoutTypes final : public host::Verbs, public host::DeviceMemory {
    using Memory = host::Memory;
    using ConstMemory = host::ConstMemory;

  public:
    explicit VerbsWithoutTypes(const Communicator<Kernels>& comm)
        : Verbs(comm.rank(), comm.size(), comm.label()), comm_(comm) {}
    const Communicator<Kernels>& typed() const noexcept { return comm_; }

    std::string_view engine_name() const noexcept override { return "nccl"; }
    engine::Traits traits() const noexcept override { return comm_.traits(); }
    Streams<AnyStream> streams() const noexcept override {
        const auto streams = comm_.streams();
        return {streams.compute, streams.communication, streams.reduction};
    }
    std::shared_ptr<void> place(std::size_t bytes) const override {
        return placed(comm_.template buffer<std::uint8_t>(bytes));
    }

    const host::DeviceMemory* device_memory() const noexcept override { return this; }
    std::shared_ptr<void> place_local(std::size_t bytes) const override {
        return placed(comm_.template local_buffer<std::uint8_t>(bytes));
    }
    void require_memory(const void* data, std::size_t bytes, std::string_view what,
                        SourceLocation where) const override {
        comm_.require_memory(data, bytes, what, where);
    }
    void require_host_memory(const void* data, std::size_t bytes, std::string_view what,
                             SourceLocation where) const override {
        comm_.require_host_memory(data, bytes, what, where);
    }
    std::unique_ptr<engine::MemoryCopies> memory_copies(const AnyStream& after, SourceLocation where) const override {
        return std::make_unique<gpu::detail::PinnedCopies>(on(after), where);
    }

    void separate_reductions(SourceLocation where) const override { comm_.separate_reductions(where); }
    void reserve_staging(std::size_t bytes, SourceLocation where) const override {
        comm_.reserve_staging(bytes, where);
    }
    bool reduces_at_once(ReduceOp op, ElementType in, ElementType out) const noexcept override {
        bool at_once = false;
        with_types(in, out, [&]<class In, class Out>() {
            at_once = Communicator<Kernels>::template reduces_at_once<In, Out>(op);
        });
        return at_once;
    }
    void start_together(const AnyStream& stream, const shardkit::Call& call, void (*body)(const void*),
                        const void* object) const override {
        comm_.start_together(on(stream), call, [&] { body(object); });
    }
    std::shared_ptr<const Verbs> named(std::string_view axes) const override { return made(comm_.named(axes)); }
    std::shared_ptr<const Verbs> split(std::size_t color, std::size_t key, std::string_view axes,
                                       const shardkit::Call& call) const override {
        return made(comm_.split(color, key, axes, call));
    }
    void compare_calls(SourceLocation where) const override { comm_.compare_calls(where); }
    void barrier(const AnyStream& stream, const shardkit::Call& call) const override {
        comm_.barrier(on(stream), call);
    }

    std::uint64_t all_gather(ConstMemory shard, Memory full, const AnyStream& stream,
                             const shardkit::Call& call) const override {
        comm_.all_gather(bytes(shard), bytes(full), on(stream), call);
        return shardkit::detail::part_from_peers(call.payload, size());
    }
    std::uint64_t reduce_scatter(const host::Reducer& /*reducer*/, ReduceOp op, ConstMemory full, Memory shard,
                                 const AnyStream& stream, const shardkit::Call& call) const override {
        return reduced(call, [&]<class In, class Out>() {
            return comm_.reduce_scatter(op, elements<In>(full), elements<Out>(shard), on(stream), call);
        });
    }
    std::uint64_t all_reduce(const host::Reducer& /*reducer*/, ReduceOp op, ConstMemory input, Memory output,
                             const AnyStream& stream, const shardkit::Call& call) const override {
        return reduced(call, [&]<class In, class Out>() {
            return comm_.all_reduce(op, elements<In>(input), elements<Out>(output), on(stream), call);
        });
    }
    std::uint64_t broadcast(Memory values, std::size_t root, const AnyStream& stream,
                            const shardkit::Call& call) const override {
        comm_.broadcast(bytes(values), root, on(stream), call);
        return shardkit::detail::bytes_with_peer(comm_, root, values.bytes());
    }
    std::uint64_t all_to_all(ConstMemory sent, Memory received, const AnyStream& stream,
                             const shardkit::Call& call) const override {
        comm_.all_to_all(bytes(sent), bytes(received), on(stream), call);
        return shardkit::detail::part_from_peers(call.payload, size());
    }
    void all_to_all_uneven(ConstMemory sent, std::span<const std::size_t> send_counts, Memory received,
                           std::span<const std::size_t> receive_counts, const AnyStream& stream,
                           const shardkit::Call& call) const override {
        const auto as_they_are = [&]<class T>(std::type_identity<T> /*of that size*/) {
            comm_.all_to_all_uneven(elements<T>(sent), send_counts, elements<T>(received), receive_counts, on(stream),
                                    call);
        };
        // Counts are those of elements.
        if (sent.size == 8) { return as_they_are(std::type_identity<std::uint64_t>{}); }
        if (sent.size == 4) { return as_they_are(std::type_identity<std::uint32_t>{}); }
        if (sent.size == 2) { return as_they_are(std::type_identity<bf16>{}); }
        as_they_are(std::type_identity<std::uint8_t>{});
    }
    void send(ConstMemory values, std::size_t to, const AnyStream& stream,
              const shardkit::Call& call) const override {
        comm_.send(bytes(values), to, on(stream), call);
    }
    void receive(Memory values, std::size_t from, const AnyStream& stream,
                 const shardkit::Call& call) const override {
        comm_.receive(bytes(values), from, on(stream), call);
    }
    void send_receive(ConstMemory sent, std::size_t to, Memory received, std::size_t from, const AnyStream& stream,
                      const shardkit::Call& call) const override {
        comm_.send_receive(bytes(sent), to, bytes(received), from, on(stream), call);
    }

  private:
    static std::shared_ptr<const Verbs> made(const Communicator<Kernels>& comm) {
        return std::make_shared<const VerbsWithoutTypes>(comm);
    }
    /// A default stream is that of verbs that are given none.
    gpu::TimelineRef on(const AnyStream& stream) const {
        return stream.is_inline() ? comm_.compute_stream() : gpu::TimelineRef(stream);
    }
    template <class T>
    static std::span<const T> elements(ConstMemory memory) noexcept {
        return {reinterpret_cast<const T*>(memory.at), memory.bytes() / sizeof(T)};
    }
    template <class T>
    static std::span<T> elements(Memory memory) noexcept {
        return {reinterpret_cast<T*>(memory.at), memory.bytes() / sizeof(T)};
    }
    static std::span<const std::uint8_t> bytes(ConstMemory memory) noexcept { return elements<std::uint8_t>(memory); }
    static std::span<std::uint8_t> bytes(Memory memory) noexcept { return elements<std::uint8_t>(memory); }

    static std::shared_ptr<void> placed(gpu::detail::ArenaBuffer<std::uint8_t> memory) {
        auto kept = std::make_shared<gpu::detail::ArenaBuffer<std::uint8_t>>(std::move(memory));
        std::uint8_t* const data = kept->data();
        return std::shared_ptr<void>(std::move(kept), data);
    }

    /// Returns reduce<In, Out>() of a call's types.
    template <class F>
    static std::uint64_t reduced(const shardkit::Call& call, const F& reduce) {
        std::uint64_t moved = 0;
        const ElementType in = call.signature.in;
        const ElementType out = call.signature.out;
        if (!with_types(in, out, [&]<class In, class Out>() { moved = reduce.template operator()<In, Out>(); })) {
            throw_invalid_argument(call.where, name(call.signature.verb), ": ", name(in), " into ", name(out),
                                   ", expected one type, or bf16 or fp16 into fp32: an engine that is chosen at run "
                                   "time has no other sums over NCCL");
        }
        return moved;
    }
    /// Calls f<In, Out>() of types that are one, or 16 bits that are added into fp32. Returns whether they are.
    template <class F>
    static bool with_types(ElementType in, ElementType out, const F& f) {
        bool found = false;
        const auto as = [&]<class In, class Out>(std::type_identity<In>, std::type_identity<Out>) {
            if (found || in != element_type_of<In> || out != element_type_of<Out>) { return; }
            found = true;
            f.template operator()<In, Out>();
        };
        const auto each = [&]<class... T>(std::type_identity<T>... types) { (as(types, types), ...); };
        each(std::type_identity<double>{}, std::type_identity<float>{}, std::type_identity<bf16>{},
             std::type_identity<fp16>{}, std::type_identity<std::int64_t>{}, std::type_identity<std::uint64_t>{},
             std::type_identity<std::int32_t>{}, std::type_identity<std::uint32_t>{},
             std::type_identity<std::uint8_t>{});
        as(std::type_identity<bf16>{}, std::type_identity<float>{});
        as(std::type_identity<fp16>{}, std::type_identity<float>{});
        return found;
    }

    Communicator<Kernels> comm_;
};

/// Returns a World's streams as an engine's.
template <class EngineType>
Streams<typename EngineType::Stream> streams_on(World& world) noexcept {
    const auto streams = world.streams();
    return {streams.compute, streams.communication, streams.reduction};
}
/// Returns a communicator over all ranks of a World, or one of the user's that is `borrowed` with a name, as an
/// engine's.
template <class EngineType, class... Borrowed>
typename EngineType::Communicator communicator_on(World& world, const Borrowed&... borrowed) {
    if constexpr (std::is_same_v<typename EngineType::Communicator, host::Communicator>) {
        using Verbs = VerbsWithoutTypes<host::AnyKernels>;
        return host::Communicator(std::make_shared<const Verbs>(Communicator<host::AnyKernels>(world, borrowed...)));
    } else {
        return typename EngineType::Communicator(world, borrowed...);
    }
}

}  // namespace shardkit::nccl::detail
