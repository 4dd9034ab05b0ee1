// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include <shardkit/backend/host/memory.hpp>
#include <shardkit/backend/host/reducer.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/comm/streams.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/not_copied.hpp>
#include <shardkit/memory/memory_copies.hpp>
#include <shardkit/policy/offload.hpp>

namespace shardkit::host {

using detail::Reducer;

/// What an engine whose memory is a device's does beside verbs.
class DeviceMemory {
  public:
    /// @throws std::invalid_argument unless it is memory of this rank's device
    virtual void require_memory(const void* data, std::size_t bytes, std::string_view what,
                                SourceLocation where) const = 0;
    /// @throws std::invalid_argument for memory of a device
    virtual void require_host_memory(const void* data, std::size_t bytes, std::string_view what,
                                     SourceLocation where) const = 0;
    /// Returns copies between it and the host's memory, behind the work of a stream so far.
    virtual std::unique_ptr<engine::MemoryCopies> memory_copies(const Stream& after, SourceLocation where) const = 0;
    /// Places zeroed pinned memory of the host, which the device can access too.
    virtual std::shared_ptr<void> place_on_host(std::size_t bytes) const = 0;
    /// Returns the stream of copies between that and the device's memory which go one way, beside other work.
    virtual Stream copy_stream(engine::LinkWay way) const noexcept = 0;
    /// Returns the stream of functions that a thread of the host calls.
    virtual Stream host_stream() const noexcept = 0;

  protected:
    ~DeviceMemory() = default;
};

/// One rank's end of a group of ranks, which an engine implements: self, threads, mpi, nccl, or your own. Elements
/// are memory of so many elements of so many bytes, and a verb that adds is given a Reducer, so an engine has no
/// templates. Communicator is the handle on it that verbs take; the contracts are those of the functions in
/// verbs/, which check sizes and ranks and log the call before.
/// Order:   stream-ordered; a default stream's verb returns when the data is there or, where memory is a device's,
///          is given to the rank's compute stream. One thread uses it at a time.
/// Errors:  CommError or PeerError, on every rank that the failure concerns
class Verbs : shardkit::detail::NotCopied {
  public:
    virtual ~Verbs() = default;

    std::size_t rank() const noexcept { return rank_; }
    std::size_t size() const noexcept { return size_; }
    const engine::CommunicatorLabel& label() const noexcept { return *label_; }

    /// Returns the engine's name in errors and records.
    virtual std::string_view engine_name() const noexcept = 0;
    virtual engine::Traits traits() const noexcept = 0;
    /// Returns the streams of a rank's work; default ones, of which a device's memory has none, run it in the caller.
    virtual Streams streams() const noexcept { return {}; }
    /// Returns a number that ranks of one host share.
    virtual std::size_t host_of(std::size_t /*rank*/) const noexcept { return 0; }
    /// Places zeroed memory where peers see it; null where any memory of the host does as well.
    virtual std::shared_ptr<void> place(std::size_t /*bytes*/) const { return nullptr; }
    /// Places likewise for this rank's kernels alone, of a size that may differ between ranks.
    virtual std::shared_ptr<void> place_local(std::size_t bytes) const { return place(bytes); }
    /// Returns the peak bytes of this rank's memory that was placed.
    virtual std::size_t most_placed_bytes() const { return 0; }

    /// Returns what it does besides where its memory is a device's; null: it is the host's.
    virtual const DeviceMemory* device_memory() const noexcept { return nullptr; }
    /// Lets reductions over these ranks run beside other verbs from now on, where the engine can. Collective.
    virtual void separate_reductions(SourceLocation /*where*/) const {}
    /// Lets the engine have memory in which reductions are made, where it needs any. Collective.
    virtual void reserve_staging(std::size_t /*bytes*/, SourceLocation /*where*/) const {}

    /// Returns the same group under another name.
    virtual std::shared_ptr<const Verbs> named(std::string_view axes) const = 0;
    virtual std::shared_ptr<const Verbs> split(std::size_t color, std::size_t key, std::string_view axes,
                                               const Call& call) const = 0;
    /// Compares the ranks' calls, where the engine does not compare each one as it is made.
    virtual void compare_calls(SourceLocation /*where*/) const {}
    virtual void barrier(const Stream& stream, const Call& call) const = 0;

    // Verbs return what they have moved, or will.

    virtual std::uint64_t all_gather(ConstMemory shard, Memory full, const Stream& stream,
                                     const Call& call) const = 0;
    virtual std::uint64_t reduce_scatter(const Reducer& reducer, ReduceOp op, ConstMemory full, Memory shard,
                                         const Stream& stream, const Call& call) const = 0;
    virtual std::uint64_t all_reduce(const Reducer& reducer, ReduceOp op, ConstMemory input, Memory output,
                                     const Stream& stream, const Call& call) const = 0;
    virtual std::uint64_t broadcast(Memory values, std::size_t root, const Stream& stream,
                                    const Call& call) const = 0;
    virtual std::uint64_t all_to_all(ConstMemory sent, Memory received, const Stream& stream,
                                     const Call& call) const = 0;
    virtual void all_to_all_uneven(ConstMemory sent, std::span<const std::size_t> send_counts, Memory received,
                                   std::span<const std::size_t> receive_counts, const Stream& stream,
                                   const Call& call) const = 0;
    virtual void send(ConstMemory values, std::size_t to, const Stream& stream, const Call& call) const = 0;
    virtual void receive(Memory values, std::size_t from, const Stream& stream, const Call& call) const = 0;
    virtual void send_receive(ConstMemory sent, std::size_t to, Memory received, std::size_t from,
                              const Stream& stream, const Call& call) const = 0;

  protected:
    Verbs(std::size_t rank, std::size_t size, const engine::CommunicatorLabel& label) noexcept
        : rank_(rank), size_(size), label_(&label) {}

  private:
    std::size_t rank_;
    std::size_t size_;
    const engine::CommunicatorLabel* label_;
};

}  // namespace shardkit::host
