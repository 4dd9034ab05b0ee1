// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/measure/workload.hpp>
#include <shardkit/rank/context.hpp>

namespace shardkit::gpu {

/// Times engines on a GPU's memory against CUDA's own copy between two buffers of the rank's GPU.
/// @pre the rank's GPU is selected
template <class Engine>
class DeviceCopy {
  public:
    static constexpr std::array<std::string_view, 1> ways{"cudaMemcpyAsync"};

    DeviceCopy(const Context<Engine>& context, std::size_t bytes)
        : stream_(context.communication_stream()),
          from_(context.template buffer<std::uint8_t>(bytes)),
          to_(context.template buffer<std::uint8_t>(bytes)) {
        std::vector<std::uint8_t> values(bytes);
        for (std::size_t i = 0; i < bytes; ++i) { values[i] = measure::copied_byte(i); }
        Engine::Kernels::copy_in(stream_, std::span<const std::uint8_t>(values), from_.span());
    }

    static std::size_t ways_for(std::size_t) noexcept { return 1; }

    /// Gives the GPU `times` copies back to back and waits for them.
    void call(std::size_t, std::size_t times) {
        for (std::size_t i = 0; i < times; ++i) {
            detail::check(
                cudaMemcpyAsync(to_.data(), from_.data(), to_.size(), cudaMemcpyDeviceToDevice, stream_.native()),
                "cudaMemcpyAsync");
        }
        stream_.synchronize();
    }

  private:
    typename Engine::Stream stream_;
    typename Engine::template Buffer<std::uint8_t> from_;
    typename Engine::template Buffer<std::uint8_t> to_;
};

}  // namespace shardkit::gpu
