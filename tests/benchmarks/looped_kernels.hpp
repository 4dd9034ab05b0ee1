// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <shardkit/backend/cub/elementwise.hpp>
#include <shardkit/backend/cub/tensors.hpp>
#include <shardkit/backend/cub/update.hpp>

#include "../unit/backend/nccl/host_functions.hpp"

/// What gpu::Kernels launch, as loops in the stand-in's streams: the same passes, cut into the same vectors.
namespace looped_kernels {

/// What the passes want of a launch.
class Launch {
  public:
    explicit Launch(const shardkit::gpu::TimelineRef& stream) : stream_(stream) {}

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
    using Stream = shardkit::gpu::TimelineRef;

    template <class From, class To>
    static void convert(const Stream& stream, std::span<const From> from, std::span<To> to) {
        shardkit::gpu::detail::convert(Launch(stream), from, to);
    }
    template <class Addend, class Sum>
    static void accumulate(const Stream& stream, std::span<const Addend> addend, std::span<Sum> total) {
        shardkit::gpu::detail::accumulate(Launch(stream), addend, total);
    }
    template <class Update, class Spans>
    static void update(const Stream& stream, std::span<const shardkit::rules::UpdateRange> ranges,
                       const Update* updates, const std::uint32_t* skip, const Spans& spans) {
        shardkit::gpu::detail::update(Launch(stream), ranges, updates, skip, spans);
    }
    template <class T>
    static void pack(const Stream& stream, std::span<const shardkit::engine::TensorPiece<T>> table,
                     std::span<T> flat) {
        shardkit::gpu::detail::copy_tensors<shardkit::gpu::detail::PackDirection::pack>(Launch(stream), table, flat);
    }
    template <class T>
    static void unpack(const Stream& stream, std::span<const shardkit::engine::TensorPiece<T>> table,
                       std::span<T> flat) {
        shardkit::gpu::detail::copy_tensors<shardkit::gpu::detail::PackDirection::unpack>(Launch(stream), table,
                                                                                          flat);
    }
};

}  // namespace looped_kernels
