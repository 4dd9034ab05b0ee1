// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include <shardkit/backend/host/decorated_verbs.hpp>
#include <shardkit/backend/host/verbs.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/comm/streams.hpp>
#include <shardkit/comm/traffic_log.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/memory/memory_copies.hpp>

namespace shardkit {

/// A rank's end of a group of ranks of an engine: self, threads, mpi, nccl, or your own Verbs. It is a cheap handle,
/// used only by its rank's thread, and valid as long as the engine says. Ranks of a group call the same verbs in the
/// same order: all_gather, reduce_scatter and the others of verbs.hpp.
/// Cost:    a virtual call for each verb, some nanoseconds
class Communicator {
  public:
    explicit Communicator(std::shared_ptr<const host::Verbs> verbs) noexcept : verbs_(std::move(verbs)) {}
    /// Takes the communicator over all ranks of an engine's world, which must outlive it.
    template <class World>
    requires requires(World& world) {
        { world.communicator() } -> std::convertible_to<const Communicator&>;
    }
    explicit Communicator(World& world) : Communicator(world.communicator()) {}

    std::size_t rank() const noexcept { return verbs_->rank(); }
    std::size_t size() const noexcept { return verbs_->size(); }
    std::string_view axes() const noexcept { return label().axes; }
    std::string_view engine_name() const noexcept { return verbs_->engine_name(); }
    engine::Traits traits() const noexcept { return verbs_->traits(); }
    const engine::CommunicatorLabel& label() const noexcept { return verbs_->label(); }
    /// Returns the calls that this rank has given to its streams, over all its communicators. Does not wait.
    TrafficLog& traffic() const noexcept { return label().journal.traffic(); }
    std::size_t host_of(std::size_t rank) const noexcept { return verbs_->host_of(rank); }
    /// Returns what this is a handle on, for who knows its type or decorates it.
    const std::shared_ptr<const host::Verbs>& verbs() const noexcept { return verbs_; }

    /// Returns the streams of a rank's work, for a Rank.
    Streams streams() const noexcept { return verbs_->streams(); }
    /// Returns the rank's stream on which gathers run while the rank goes on, and that of reductions; default ones
    /// where the engine does not overlap.
    Stream communication_stream() const noexcept { return verbs_->streams().communication; }
    Stream reduction_stream() const noexcept { return verbs_->streams().reduction; }

    /// Allocates zeroed memory for n elements that peers see.
    template <Element T>
    HostBuffer<T> buffer(std::size_t n) const {
        return HostBuffer<T>::placed(n, [this](std::size_t bytes) { return place(bytes); });
    }
    /// Allocates likewise for this rank's kernels alone, of a size that may differ between ranks.
    template <Element T>
    HostBuffer<T> local_buffer(std::size_t n) const {
        return HostBuffer<T>::placed(n, [this](std::size_t bytes) { return place_local(bytes); });
    }
    /// Allocates zeroed memory of the host, which a device can access too.
    template <Element T>
    HostBuffer<T> host_buffer(std::size_t n) const {
        const host::DeviceMemory* const device = verbs_->device_memory();
        if (device == nullptr) { return HostBuffer<T>(n); }
        return HostBuffer<T>::placed(n, [&](std::size_t bytes) { return owned(device->place_on_host(bytes)); });
    }
    /// Allocates likewise so many bytes; none where an engine leaves that to the buffer.
    shardkit::detail::PlacedMemory place(std::size_t bytes) const { return owned(verbs_->place(bytes)); }
    shardkit::detail::PlacedMemory place_local(std::size_t bytes) const { return owned(verbs_->place_local(bytes)); }
    /// Returns a device's stream of copies between that and its own memory, and that of functions of the host: see
    /// DeviceMemory. Default ones where memory is the host's.
    Stream copy_stream(engine::LinkWay way) const noexcept {
        const host::DeviceMemory* const device = verbs_->device_memory();
        return device == nullptr ? Stream() : device->copy_stream(way);
    }
    Stream host_stream() const noexcept {
        const host::DeviceMemory* const device = verbs_->device_memory();
        return device == nullptr ? Stream() : device->host_stream();
    }
    /// @throws std::invalid_argument where memory is a device's, unless it is that of this rank's
    void require_memory(const void* data, std::size_t bytes, std::string_view what,
                        SourceLocation where = SourceLocation::current()) const {
        if (const auto* const device = verbs_->device_memory()) { device->require_memory(data, bytes, what, where); }
    }
    /// @throws std::invalid_argument where memory is a device's, for such memory
    void require_host_memory(const void* data, std::size_t bytes, std::string_view what, SourceLocation where) const {
        if (const auto* const device = verbs_->device_memory()) {
            device->require_host_memory(data, bytes, what, where);
        }
    }

    /// Returns copies between its memory and the host's, behind the work of a stream so far; null where its memory is
    /// the host's.
    std::unique_ptr<engine::MemoryCopies> memory_copies(const Stream& after, SourceLocation where) const {
        const host::DeviceMemory* const device = verbs_->device_memory();
        return device == nullptr ? nullptr : device->memory_copies(after, where);
    }
    /// Returns the peak bytes of this rank's memory that the engine has placed; on a GPU those of its own there too.
    std::size_t most_placed_bytes() const { return verbs_->most_placed_bytes(); }

    Communicator named(std::string_view axes) const {
        return axes == this->axes() ? *this : Communicator(verbs_->named(axes));
    }
    void compare_calls(SourceLocation where) const { verbs_->compare_calls(where); }
    void separate_reductions(SourceLocation where = SourceLocation::current()) const {
        verbs_->separate_reductions(where);
    }
    void reserve_staging(std::size_t bytes, SourceLocation where = SourceLocation::current()) const {
        verbs_->reserve_staging(bytes, where);
    }

  private:
    static shardkit::detail::PlacedMemory owned(std::shared_ptr<void> memory) {
        if (memory == nullptr) { return {}; }
        void* const at = memory.get();
        return {at, new std::shared_ptr<void>(std::move(memory)),
                [](void* owner) noexcept { delete static_cast<std::shared_ptr<void>*>(owner); }};
    }

    std::shared_ptr<const host::Verbs> verbs_;
};

/// Checks that all ranks of `comm` have called the same verbs over it, in the same order. Collective over `comm`.
/// Does nothing where the engine compares each call anyway, or was configured not to compare.
/// @throws  CommError, on every rank, which names two ranks and the first call in which they differ
inline void compare_calls(const Communicator& comm, SourceLocation where = SourceLocation::current()) {
    comm.compare_calls(where);
}

}  // namespace shardkit
