// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <new>
#include <span>
#include <string_view>

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/memory/memory_error.hpp>
#include <shardkit/memory/slot_pool.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/rank/rank_resources.hpp>
#include <shardkit/sharded/group_geometry.hpp>
#include <shardkit/verbs/communicator.hpp>

namespace shardkit::detail {

/// Allocates a buffer for the group at `path`. `what` names its content for the error.
/// `offloaded`: in the host's memory instead of the engine's.
/// @throws MemoryError when there is no memory
template <Element T>
HostBuffer<T> group_buffer(const Rank& rank, std::string_view path, std::string_view what, std::size_t n,
                           bool offloaded = false) {
    try {
        return offloaded ? rank.world().host_buffer<T>(n) : rank.buffer<T>(n);
    } catch (const std::bad_alloc&) { throw MemoryError(path, n * sizeof(T), what); }
}

/// Returns a lease on the pool of slots that groups with the same shapes share.
/// @throws MemoryError when there is no memory
inline SlotLease group_lease(Rank& rank, const GroupGeometry& group, SlotPurpose purpose, std::size_t bytes) {
    try {
        return SlotLease(RankResources::of(rank).pools, purpose, bytes, group.alike);
    } catch (const std::bad_alloc&) { throw MemoryError(group.path, bytes, concat(name(purpose), " buffer")); }
}

}  // namespace shardkit::detail
