// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <shardkit/backend/host/enqueued_kernels.hpp>
#include <shardkit/backend/host/host_stream.hpp>
#include <shardkit/backend/mpi/communicator.hpp>
#include <shardkit/backend/mpi/exchange.hpp>
#include <shardkit/comm/cost.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/rank/engine.hpp>

namespace shardkit::mpi {

/// The engine whose ranks are processes on one or many hosts, over any MPI implementation. `Sums` is Exchange or
/// Staged.
template <class Sums = Exchange>
struct Engine {
    static constexpr std::string_view name = "mpi";
    static constexpr engine::Traits traits = Sums::traits;
    using Communicator = mpi::Communicator<Sums>;
    using Stream = host::HostStream;
    template <class T>
    using Buffer = HostBuffer<T>;
    using Kernels = host::EnqueuedKernels<host::HostStream>;
};

static_assert(shardkit::Engine<Engine<>> && engine::GroupVerbs<Engine<>> && engine::StepKernels<Engine<>> &&
              engine::IndexKernels<Engine<>>);

}  // namespace shardkit::mpi
