// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <new>
#include <span>
#include <string_view>

#include <shardkit/detail/concat.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/memory/memory_error.hpp>
#include <shardkit/memory/slot_pool.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/rank/engine.hpp>
#include <shardkit/sharded/group_geometry.hpp>

namespace shardkit::detail {

/// Allocates a buffer for the group at `path`. `what` names its content for the error.
/// @throws MemoryError when there is no memory
template <Element T, class Engine>
typename Engine::template Buffer<T> group_buffer(const Context<Engine>& context, std::string_view path,
                                                 std::string_view what, std::size_t n) {
    try {
        return context.template buffer<T>(n);
    } catch (const std::bad_alloc&) { throw MemoryError(path, n * sizeof(T), what); }
}

/// A buffer of a group in the engine's memory or, where the group is offloaded, in the host's.
template <class Engine, class T>
class OffloadedBuffer {
    static constexpr bool can_offload = engine::Offloads<typename Engine::Communicator>;

  public:
    OffloadedBuffer() = default;
    /// Allocates as group_buffer.
    /// @throws MemoryError when there is no memory
    OffloadedBuffer(const Context<Engine>& context, bool offloaded, std::string_view path, std::string_view what,
                    std::size_t n) {
        if constexpr (can_offload) {
            if (offloaded) {
                try {
                    host_ = context.world().template host_buffer<T>(n);
                } catch (const std::bad_alloc&) { throw MemoryError(path, n * sizeof(T), what); }
                return;
            }
        }
        engine_ = group_buffer<T>(context, path, what, n);
    }

    std::span<T> span() const noexcept {
        return host_.size() > 0 ? host_.span() : engine_.span();
    }

  private:
    typename Engine::template Buffer<T> engine_{};
    HostBuffer<T> host_{};
};

/// Returns a lease on the pool of slots that groups with the same shapes share.
/// @throws MemoryError when there is no memory
template <class Engine>
SlotLease<Engine> group_lease(Context<Engine>& context, const GroupGeometry& group, SlotPurpose purpose,
                              std::size_t bytes) {
    try {
        return SlotLease<Engine>(Access::pools(context), purpose, bytes, group.alike);
    } catch (const std::bad_alloc&) { throw MemoryError(group.path, bytes, concat(name(purpose), " buffer")); }
}

}  // namespace shardkit::detail
