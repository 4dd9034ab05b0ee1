// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include <shardkit/backend/cuda/timeline.hpp>

namespace shardkit::gpu::detail {

/// Adapts a work without an index to one with an index.
template <class Work>
struct RunOnce {
    static_assert(std::is_trivially_copyable_v<Work>, "Kernels::run: the work must be trivially copyable");

    Work work;

    constexpr void operator()(std::uint64_t /*always 0*/) const { work(); }
};

/// Runs work(i) for each i in [0, count), in one launch. The threads of a warp run side by side on 32 adjacent
/// indices, of which the first is a multiple of 32, so works may exchange values among the indices of one warp. The
/// call operator is defined in launch.cuh: a file that includes only this header must link with an object of nvcc
/// that instantiates it for the same Work.
/// Order:  stream-ordered; the indices of one launch have no order.
class DeviceLaunch {
  public:
    using Stream = gpu::TimelineRef;

    explicit DeviceLaunch(const gpu::TimelineRef& stream) noexcept : stream_(stream) {}

    /// Launches `count` works.
    /// @pre    Work is trivially copyable and its operator() const is constexpr   @throws gpu::Error naming `kernel`
    template <class Work>
    void operator()(std::uint64_t count, const Work& work, std::string_view kernel) const;

    /// Launches first(copy of first.reads()), and behind it work(i) for each i in [0, count), all in one block: for
    /// few works that depend on one. The reads are loaded by as many threads at once.
    /// @pre    as above, for both; first.reads() are at most First::most_reads doubles   @throws gpu::Error
    template <class First, class Work>
    void behind(const First& first, std::uint64_t count, const Work& work, std::string_view kernel) const;

  private:
    gpu::TimelineRef stream_;
};

}  // namespace shardkit::gpu::detail
