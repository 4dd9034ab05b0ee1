// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <shardkit/backend/host/enqueued_kernels.hpp>
#include <shardkit/backend/self/communicator.hpp>
#include <shardkit/comm/cost.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/rank/engine.hpp>

namespace shardkit::self {

/// The engine of a single rank in the caller's thread; nothing is communicated.
struct Engine {
    static constexpr std::string_view name = "self";
    static constexpr engine::Traits traits{.adds_along_trees = true};
    using Communicator = self::Communicator;
    using Stream = InlineStream;
    template <class T>
    using Buffer = HostBuffer<T>;
    using Kernels = host::EnqueuedKernels<InlineStream>;
};

}  // namespace shardkit::self
