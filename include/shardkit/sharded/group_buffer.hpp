// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <new>
#include <string_view>

#include <shardkit/detail/concat.hpp>
#include <shardkit/memory/memory_error.hpp>
#include <shardkit/memory/slot_pool.hpp>
#include <shardkit/rank/context.hpp>
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
