// SPDX-License-Identifier: Apache-2.0
// flags: -fmad=true
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <shardkit/backend/cub/kernels.cuh>

#include "../unit/backend/cub/adamw_checks.hpp"
#include "gpu_machine.hpp"

// The kernels as a user's build makes them: with multiply-adds fused, which the other tests switch off. Own functors,
// so that this program does not take the others' kernels.

namespace sk = shardkit;
namespace test = shardkit::test;

namespace {

/// AdamW's pass under a name of its own: libkernels.a has the one that is not fused.
struct FusedPass {
    sk::gpu::detail::UpdatePass<sk::detail::KnownRuleUpdate<sk::rules::AdamWUpdate<float>>, float, sk::bf16, float, 2>
        pass;
    constexpr void operator()(std::uint64_t vector) const { pass(vector); }
};

struct FusedLaunch {
    using Stream = sk::gpu::TimelineRef;

    explicit FusedLaunch(const Stream& stream) : launch(stream) {}

    sk::gpu::detail::DeviceLaunch launch;
    template <class Pass>
    void operator()(std::uint64_t count, const Pass& pass, std::string_view kernel) const {
        launch(count, FusedPass{pass}, kernel);
    }
};

double ulp(float value) {
    return std::max(std::nextafter(std::abs(value), std::numeric_limits<float>::infinity()) - std::abs(value),
                    std::numeric_limits<float>::min());
}

}  // namespace

TEST_CASE("AdamW with fused multiply-adds stays within two units in the last place and 1e-6 of a step") {
    test::GpuMachine gpu;
    auto& machine = gpu.machine();
    using Data = test::UpdateData<float, sk::bf16, float, 2>;
    const std::size_t size = 100'003;
    Data data(size);
    const test::UpdateArrays<test::GpuMachine::Machine, float, sk::bf16, float, 2> arrays(machine, data, {{0}});
    const std::vector<sk::rules::UpdateRange> runs{{0, size, 0}};
    const auto updates = test::adamw_updates<float>();
    const auto runs_there = test::array(machine, runs);
    const auto updates_there = test::array(machine, updates);
    const auto spans = arrays.spans();
    using Fused = sk::gpu::detail::LaunchedKernels<FusedLaunch>;
    Fused::update(gpu.stream(), runs_there.view(), updates_there.view().data(),
                  static_cast<const std::uint32_t*>(nullptr), spans);
    const std::vector<float> before = data.master;
    data.step(runs, updates);
    std::vector<float> master(size);
    test::GpuKernels::copy_out(gpu.stream(), std::span<const float>(spans.master), std::span(master));
    std::size_t outside = 0;
    for (std::size_t i = 0; i < size; ++i) {
        const double step = std::abs(static_cast<double>(data.master[i]) - before[i]);
        const double difference = std::abs(static_cast<double>(master[i]) - data.master[i]);
        outside += difference <= 2 * ulp(data.master[i]) + 1e-6 * (step + updates[0].step_size) ? 0U : 1U;
    }
    CHECK(outside == 0);
}
