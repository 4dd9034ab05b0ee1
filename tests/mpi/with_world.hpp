// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>

#include <shardkit/backend/mpi/communicator.hpp>
#include <shardkit/backend/mpi/environment.hpp>
#include <shardkit/backend/mpi/options.hpp>
#include <shardkit/backend/mpi/world.hpp>
#include <shardkit/memory/host_buffer.hpp>

#include "unit/backend/verb_values.hpp"

namespace mpi_test {

namespace sk = shardkit;

/// A rank that waits longer than this has lost its peers: the test fails instead of hanging.
inline sk::mpi::Options patient(sk::mpi::Options options = {}) {
    options.timeout = std::chrono::seconds(60);
    return options;
}

/// f(communicator over all processes) in a World of its own.
template <class F>
void with_world(const sk::mpi::Options& options, F f) {
    sk::mpi::World world(MPI_COMM_WORLD, patient(options));
    f(world.communicator());
    world.finish();
}

/// Every way in which a World can do the same: with a thread of its own, through shared memory or messages, between
/// hosts, without comparing calls, in small blocks and pieces that MPI's counts could hold many times over.
inline const sk::mpi::Options ways[] = {
    {},
    {.overlap = true},
    {.overlap = true, .separate_reductions = false},
    {.shared_memory = false},
    {.overlap = true, .shared_memory = false},
    {.ranks_per_host = 1},
    {.ranks_per_host = 2},
    {.overlap = true, .ranks_per_host = 2, .staging_bytes = 4000, .message_elements = 100},
    {.shared_memory = false, .compare_calls = sk::CompareCalls::off},
    {.shared_memory = false, .compare_calls = sk::CompareCalls::each_step},
    {.ranks_per_host = 2, .compare_calls = sk::CompareCalls::each_step},
    {.shared_memory = false, .staging_bytes = 4000, .message_elements = 100},
};

/// Where the suites' values lie: in the engine's buffers, or, for what users bring, on the heap; chosen by each rank.
inline bool values_in_buffers = true;
/// What their verbs are given to.
inline sk::Stream verb_stream;

}  // namespace mpi_test

template <>
struct verb_values::Bench<shardkit::Communicator> {
    using C = shardkit::Communicator;
    static shardkit::Stream stream(const C&) { return mpi_test::verb_stream; }
    static constexpr verb_oracle::Order all_reduce_order = verb_oracle::Order::upwards;

    template <class T>
    class Memory {
      public:
        Memory(const C& comm, std::span<T> host)
            : memory_(mpi_test::values_in_buffers ? comm.buffer<T>(host.size())
                                                  : shardkit::HostBuffer<T>(host.size())) {}
        T* data() const { return memory_.data(); }
        void write(std::span<const T> host) { std::ranges::copy(host, memory_.data()); }
        void read(std::span<T> host) {
            mpi_test::verb_stream.synchronize();
            std::copy_n(memory_.data(), host.size(), host.begin());
        }

      private:
        /// Nothing reads or writes the memory any more when it ends.
        struct Done {
            Done() = default;
            Done(const Done&) = default;
            Done& operator=(const Done&) = default;
            ~Done() { mpi_test::verb_stream.synchronize(); }
        };
        shardkit::HostBuffer<T> memory_;
        Done done_;
    };
};
