// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <shardkit/backend/cub/launched_kernels.hpp>

#include "../unit/backend/nccl/host_functions.hpp"

/// What gpu::Kernels launch, as loops in the stand-in's streams: the same passes, cut into the same vectors.
namespace looped_kernels {

/// What the passes want of a launch.
class Launch {
  public:
    using Stream = shardkit::gpu::TimelineRef;

    explicit Launch(const Stream& stream) : stream_(stream) {}

    template <class Work>
    void operator()(std::uint64_t count, const Work& work, std::string_view) const {
        stream_.submit([count, work] {
            for (std::uint64_t i = 0; i < count; ++i) { work(i); }
        });
    }

  private:
    host_functions::LaunchedStream stream_;
};

struct Kernels : host_functions::Kernels {
    using Launched = shardkit::gpu::detail::LaunchedKernels<Launch>;
    using Stream = Launched::Stream;

    template <class From, class To>
    static void convert(const Stream& stream, std::span<const From> from, std::span<To> to) {
        Launched::convert(stream, from, to);
    }
    template <class Addend, class Sum>
    static void accumulate(const Stream& stream, std::span<const Addend> addend, std::span<Sum> total) {
        Launched::accumulate(stream, addend, total);
    }
    template <class Update, class Spans>
    static void update(const Stream& stream, std::span<const shardkit::rules::UpdateRange> ranges,
                       const Update* updates, const std::uint32_t* skip, const Spans& spans) {
        Launched::update(stream, ranges, updates, skip, spans);
    }
    template <class T>
    static void pack(const Stream& stream, std::span<const shardkit::engine::TensorPiece<T>> table,
                     std::span<T> flat) {
        Launched::pack(stream, table, flat);
    }
    template <class T>
    static void unpack(const Stream& stream, std::span<const shardkit::engine::TensorPiece<T>> table,
                       std::span<T> flat) {
        Launched::unpack(stream, table, flat);
    }
};

}  // namespace looped_kernels
