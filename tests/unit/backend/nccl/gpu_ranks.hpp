// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/backend/nccl/communicator.hpp>
#include <shardkit/backend/nccl/options.hpp>
#include <shardkit/backend/nccl/unique_id.hpp>
#include <shardkit/backend/nccl/world.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/verbs/communicator.hpp>

#include "../rank_checks.hpp"
#include "../verb_values.hpp"
#include "host_functions.hpp"
#include "standin.hpp"

/// Ranks that are threads of this process, each with a GPU of the stand-in.
namespace gpu_ranks {

namespace sk = shardkit;
using Comm = sk::Communicator;
using rank_checks::Kind;
using rank_checks::Outcome;

/// A rank that waits longer than this has lost its peers: the test fails instead of hanging.
inline sk::nccl::Options patient(sk::nccl::Options options = {}) {
    options.timeout = std::chrono::seconds(60);
    options.compare_calls = sk::CompareCalls::off;  // also in checked builds: compare_calls_test.cpp asks for it
    options.arena_chunk_bytes = std::size_t{2} << 20U;
    options.staging_bytes = std::size_t{1} << 20U;
    return options;
}
/// The timeout of ranks that will lose a peer, and how messages say it. It passes for nobody who still comes, also in
/// slow builds.
inline constexpr std::chrono::milliseconds short_timeout{rank_checks::sanitized ? 600 : 300};
inline const std::string after_short_timeout = std::to_string(short_timeout.count()) + " ms";
inline sk::nccl::Options impatient() {
    sk::nccl::Options options = patient();
    options.timeout = short_timeout;
    return options;
}

/// f(rank) in a thread of its own for every rank, its GPU selected; what each ended with.
template <class F>
std::vector<Outcome> each_in_a_thread(std::size_t ranks, const F& f) {
    std::vector<std::exception_ptr> errors(ranks);
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
            try {
                sk::gpu::detail::check(cudaSetDevice(static_cast<int>(rank)), "cudaSetDevice");
                f(rank);
            } catch (...) { errors[rank] = std::current_exception(); }
        });
    }
    for (std::thread& thread : threads) { thread.join(); }
    if (standin::live().queued == 0) { host_functions::Kept::all().forget(); }
    std::vector<Outcome> outcomes;
    for (const std::exception_ptr& error : errors) { outcomes.push_back(rank_checks::outcome(error)); }
    return outcomes;
}

/// f(communicator over all ranks) on every rank, each in a World of its own.
template <class F>
std::vector<Outcome> with_world(std::size_t ranks, const sk::nccl::Options& options, const F& f) {
    const sk::nccl::UniqueId id = sk::nccl::UniqueId::create();
    return each_in_a_thread(ranks, [&](std::size_t rank) {
        sk::nccl::World world(id, ranks, rank, options);
        f(Comm(world), world);
        world.finish();
    });
}

/// The first error, empty when all ranks are fine.
inline std::string first_error(const std::vector<Outcome>& outcomes) {
    for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
        if (outcomes[rank].kind != Kind::none) { return "rank " + std::to_string(rank) + ": " + outcomes[rank].text; }
    }
    return {};
}

/// The stand-in in its first state, at both extremes of when work runs.
inline void restart(standin::Pace pace = standin::Pace::lazy) {
    standin::reset();
    standin::set_pace(pace);
}
inline constexpr standin::Pace paces[] = {standin::Pace::lazy, standin::Pace::eager};

}  // namespace gpu_ranks

template <>
struct verb_values::Bench<gpu_ranks::Comm> {
    static shardkit::gpu::TimelineRef stream(const gpu_ranks::Comm& comm) {
        return shardkit::gpu::TimelineRef(comm.communication_stream());
    }
    static constexpr verb_oracle::Order all_reduce_order = verb_oracle::Order::downwards;

    template <class T>
    class Memory {
      public:
        Memory(const gpu_ranks::Comm& comm, std::span<T> host)
            : stream_(stream(comm)), memory_(comm.template buffer<T>(host.size())) {}
        Memory(Memory&&) noexcept = default;
        Memory& operator=(Memory&&) = delete;
        /// The arena may hand it out again at once: its work must be over.
        ~Memory() {
            if (memory_.data() == nullptr) { return; }
            try {
                stream_.synchronize();
            } catch (const std::exception&) {}  // the World has failed, and says so itself
        }
        T* data() const { return memory_.data(); }
        void write(std::span<const T> host) { copy(memory_.data(), host.data(), host.size_bytes()); }
        void read(std::span<T> host) {
            stream_.synchronize();  // before the copy is queued: should this throw, nothing writes to `host` later
            copy(host.data(), memory_.data(), host.size_bytes());
            stream_.synchronize();
        }

      private:
        void copy(void* to, const void* from, std::size_t bytes) {
            shardkit::gpu::detail::check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_.native()),
                                         "cudaMemcpyAsync");
        }

        shardkit::gpu::TimelineRef stream_;
        shardkit::HostBuffer<T> memory_;
    };
};
