// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <shardkit/backend/host/enqueued_kernels.hpp>
#include <shardkit/backend/host/kernels.hpp>
#include <shardkit/comm/communicator.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/rank/engine.hpp>

#include "lazy_stream.hpp"

namespace lazy {

namespace sk = shardkit;

/// One rank whose verbs are copies that run when their stream gets to them.
class Communicator {
  public:
    using Stream = lazy::Stream;

    static std::size_t rank() { return 0; }
    static std::size_t size() { return 1; }
    static std::string_view axes() { return "self"; }
    Communicator split(std::size_t, std::size_t, std::string_view, sk::SourceLocation) const { return *this; }
    Communicator named(std::string_view) const { return *this; }
    static void barrier(const Stream&, sk::SourceLocation) {}

    template <class T>
    void all_gather(std::span<const T> shard, std::span<T> full, const Stream& stream, sk::SourceLocation) const {
        copy(shard, full, stream);
    }
    template <class In, class Out>
    void reduce_scatter(sk::ReduceOp, std::span<const In> full, std::span<Out> shard, const Stream& stream,
                        sk::SourceLocation) const {
        copy(full, shard, stream);
    }
    template <class In, class Out>
    void all_reduce(sk::ReduceOp, std::span<const In> input, std::span<Out> output, const Stream& stream,
                    sk::SourceLocation) const {
        copy(input, output, stream);
    }

  private:
    template <class In, class Out>
    static void copy(std::span<const In> from, std::span<Out> to, const Stream& stream) {
        stream.submit([=] { sk::detail::HostKernels::convert(sk::InlineStream{}, from, to); });
    }
};

struct Engine {
    static constexpr std::string_view name = "lazy";
    using Communicator = lazy::Communicator;
    using Stream = lazy::Stream;
    template <class T>
    using Buffer = sk::HostBuffer<T>;
    using Kernels = sk::host::EnqueuedKernels<Stream>;
};
static_assert(sk::Engine<Engine> && sk::engine::GroupVerbs<Engine> && sk::engine::StepKernels<Engine> &&
              sk::engine::IndexKernels<Engine>);

}  // namespace lazy
