// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/error.hpp>

#include "../unit/backend/cub/adamw_checks.hpp"
#include "../unit/backend/cub/multiply.hpp"
#include "../unit/backend/cub/norm_pieces.hpp"
#include "gpu_machine.hpp"

namespace sk = shardkit;
namespace test = shardkit::test;
using sk::gpu::detail::check;

TEST_CASE("a CUDA graph of the kernels gives what the calls give, launch after launch") {
    test::GpuMachine gpu;
    auto& machine = gpu.machine();
    using Kernels = sk::gpu::Kernels;
    const auto stream = gpu.stream();
    test::UpdateData<float, sk::bf16, float, 2> data(1003);
    const test::UpdateArrays<test::GpuMachine::Machine, float, sk::bf16, float, 2> arrays(machine, data, {{0}});
    const std::vector<sk::rules::UpdateRange> runs = test::runs_of(1003).back();
    const auto updates = test::adamw_updates<float>();
    const auto runs_there = test::array(machine, runs);
    const auto pieces = test::norm_pieces(arrays.spans().gradient, test::ranges_of(runs));
    const auto pieces_there = test::array(machine, pieces);
    const auto updates_there = test::array(machine, updates);
    const auto scalars = test::array(machine, std::vector<double>{2, 3, 0});
    const auto sum = test::array(machine, std::vector<double>(shardkit::detail::NormSum::numbers));
    const auto skip = test::array(machine, std::vector<std::uint32_t>{0});
    double* const at = scalars.data();
    const auto step = [&] {
        Kernels::run_once(stream, test::Multiply{at, at + 1, at + 2});
        Kernels::norm_partial(stream, pieces_there.view(), test::positions_of(pieces), at + 2, sum.data());
        Kernels::update(stream, runs_there.view(), updates_there.view().data(), skip.view().data(), arrays.spans());
    };
    step();
    const auto total = [&] { return shardkit::detail::NormSum(sum.values().data()).total(); };
    const double norm = total().sum_of_squares;
    CHECK(norm > 0);

    cudaGraph_t graph = nullptr;
    cudaGraphExec_t launchable = nullptr;
    check(cudaStreamBeginCapture(stream.native(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    step();
    check(cudaStreamEndCapture(stream.native(), &graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&launchable, graph, 0), "cudaGraphInstantiate");
    check(cudaGraphLaunch(launchable, stream.native()), "cudaGraphLaunch");
    check(cudaGraphLaunch(launchable, stream.native()), "cudaGraphLaunch");
    stream.synchronize();
    check(cudaGraphExecDestroy(launchable), "cudaGraphExecDestroy");
    check(cudaGraphDestroy(graph), "cudaGraphDestroy");

    for (int i = 0; i < 3; ++i) { data.step(runs, updates); }
    arrays.check_equal(data);
    const std::vector<double> now = scalars.values();
    CHECK(now[2] == 6);
    CHECK(total() == shardkit::detail::NormTotal{3 * norm, 0});
}
