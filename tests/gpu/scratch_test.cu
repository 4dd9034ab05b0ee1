// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpu_machine.hpp"
#include "unit/backend/cub/norm_pieces.hpp"

namespace sk = shardkit;

TEST_CASE("a stream with too little scratch is told both sizes") {
    sk::test::GpuMachine gpu;
    const sk::gpu::Stream stream;
    sk::gpu::Timeline timeline(stream.ref(), {.scratch_bytes = 16});
    const auto gradient = sk::test::array(gpu.machine(), std::vector<float>(1'000'000));
    const auto pieces = sk::test::norm_pieces(gradient.view(), {{0, 1'000'000}});
    const auto there = sk::test::array(gpu.machine(), pieces);
    const auto scalars = sk::test::array(gpu.machine(), std::vector<double>(1 + sk::detail::NormSum::numbers));
    std::string text;
    try {
        sk::gpu::Kernels::norm_partial(timeline.ref(), there.view(), sk::test::positions_of(pieces), scalars.data(),
                                       scalars.data() + 1);
    } catch (const std::runtime_error& error) { text = error.what(); }
    CHECK(text.starts_with("gpu::Kernels::norm_partial: the stream has 16 bytes of scratch, the reduction needs "));
}
