// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <shardkit/backend/host/enqueued_kernels.hpp>
#include <shardkit/backend/host/host_stream.hpp>
#include <shardkit/backend/threads/communicator.hpp>
#include <shardkit/backend/threads/group.hpp>
#include <shardkit/comm/cost.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/rank/engine.hpp>

namespace shardkit::threads {

/// The engine whose ranks are threads of one process. It is the default, and the reference for tests of other
/// engines.
struct Engine {
    static constexpr std::string_view name = "threads";
    static constexpr engine::Traits traits{.gathered_all_reduce_addends = detail::carried_bytes,
                                           .adds_along_trees = true};
    using Communicator = threads::Communicator;
    using Stream = host::HostStream;
    template <class T>
    using Buffer = HostBuffer<T>;
    using Kernels = host::EnqueuedKernels<host::HostStream>;
};

}  // namespace shardkit::threads
