// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <shardkit/core/element.hpp>

// The type of an engine that is chosen at run time, whose parts are only declared here: see engine.hpp.

namespace shardkit {
class AnyStream;
template <Element T>
class HostBuffer;
}  // namespace shardkit

namespace shardkit::host {

class Communicator;
struct AnyKernels;

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
