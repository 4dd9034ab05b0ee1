// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstddef>
#include <span>
#include <vector>

#include "../unit/backend/cuda/typed_bytes.hpp"
#include "../unit/backend/host/kernel_data.hpp"
#include "gpu_machine.hpp"

namespace sk = shardkit;
namespace test = shardkit::test;
using Kernels = test::GpuKernels;

TEST_CASE("copy_in and copy_out are ordered by the stream, and done when they return") {
    test::GpuMachine gpu;
    const std::size_t size = std::size_t{1} << 22U;
    const auto there = test::array(gpu.machine(), std::vector<float>(size));
    const TypedBytes<float> locked = pinned<float>(size);
    for (int round = 0; round < 5; ++round) {
        for (float& element : locked.span()) { element = static_cast<float>(round); }
        Kernels::copy_in(gpu.stream(), std::span<const float>(locked.span()), there.span());
        for (float& element : locked.span()) { element = -1; }  // must not reach the device
        Kernels::accumulate(gpu.stream(), there.view(), there.span());
        std::vector<float> got(size);
        Kernels::copy_out(gpu.stream(), there.view(), std::span(got));
        CHECK(test::same_bits(got, std::vector<float>(size, 2 * static_cast<float>(round))));
    }
}
