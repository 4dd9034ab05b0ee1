// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <shardkit/backend/cuda/arena_buffer.hpp>
#include <shardkit/backend/cuda/pinned_copies.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/cuda/toolkit_elements.hpp>
#include <shardkit/backend/host/enqueued_kernels.hpp>
#include <shardkit/backend/nccl/options.hpp>
#include <shardkit/backend/nccl/typed_communicator.hpp>
#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/comm/stream.hpp>

namespace shardkit::nccl {

/// The engine whose ranks are GPUs of one or many machines, with a process or thread each, over NCCL. `KernelsType`
/// does the element-wise work on the GPU, for example gpu::Kernels.
template <class KernelsType>
struct Engine {
    static constexpr std::string_view name = "nccl";
    static constexpr engine::Traits traits = detail::usual_traits;
    using Kernels = KernelsType;
    using HostKernels = host::EnqueuedKernels<InlineStream>;
    using Communicator = TypedCommunicator<Kernels>;
    using Stream = gpu::TimelineRef;
    template <class T>
    using Buffer = gpu::detail::ArenaBuffer<T>;
    using MemoryCopies = gpu::detail::PinnedCopies;
};

}  // namespace shardkit::nccl
