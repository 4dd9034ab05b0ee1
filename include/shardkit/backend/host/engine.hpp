// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/backend/host/communicator.hpp>
#include <shardkit/backend/host/decorated_verbs.hpp>
#include <shardkit/comm/any_stream.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/rank/engine.hpp>

namespace shardkit::host {

/// The engine of ranks that name none. Which one, self, threads, mpi or nccl, is a value: that of the rank's
/// communicator. So one trainer, compiled once, runs on all of them. Whether memory is the host's or a device's, a
/// rank's streams say.
struct Engine {
    static constexpr std::string_view name = "host";
    using Communicator = host::Communicator;
    using Stream = AnyStream;
    template <class T>
    using Buffer = HostBuffer<T>;
    using Kernels = AnyKernels;
};

}  // namespace shardkit::host
