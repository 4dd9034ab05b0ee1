// SPDX-License-Identifier: Apache-2.0
// What is timed on a GPU, on the stand-in for one: the passes are loops, and no figure says anything.
#include <cstddef>
#include <vector>

#include <doctest/doctest.h>
#include <shardkit/backend/nccl/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "../../benchmarks/gpu/kernels.hpp"
#include "../../benchmarks/kernels/gpu_times.hpp"
#include "../../benchmarks/kernels/run_kernels.hpp"
#include "../unit/backend/nccl/given_kernels.hpp"
#include "check_kernel.hpp"
#include "looped_kernels.hpp"
#include "standin.hpp"

namespace kernels_standin_test {

namespace {

using namespace benchmarks::kernels;

/// f(rank) on the one rank of a World, whose streams work as late as they may, and then early.
template <class F>
void on_a_gpu(const F& f) {
    for (const standin::Pace pace : {standin::Pace::lazy, standin::Pace::eager}) {
        standin::reset();
        standin::set_pace(pace);
        {
            shardkit::nccl::World world(shardkit::nccl::UniqueId::create(), 1, 0);
            shardkit::nccl::run(shardkit::DeviceMesh<1>{}, world, [&](shardkit::Rank& rank) { f(rank); });
        }
        host_functions::Kept::all().forget();
        CHECK(host_functions::given_beside(benchmarks::gpu::Kernels{}) == "");
        CHECK(standin::frees_in_use().empty());
        CHECK(standin::live() == standin::Live{});
    }
}

std::vector<Row> rows_of(const Options& options) {
    std::vector<Row> rows;
    on_a_gpu([&](shardkit::Rank& rank) {
        rows.clear();
        run_kernels(
            rank, options, [&](const Row& row) { rows.push_back(row); }, GpuTimes{rank.streams(), options.graph});
    });
    return rows;
}

Options small() {
    Options options;
    options.device = Device::gpu;
    options.min_bytes = 64;
    options.max_bytes = 65536;
    options.step_factor = 32;
    options.rounds = 2;
    options.calls = 2;
    options.warmup = 1;
    return options;
}

}  // namespace

TEST_CASE("every kernel on a GPU: right data passes, one spoiled element is one wrong value, no call is wrong") {
    on_a_gpu([](shardkit::Rank& rank) { check_kernels(rank); });
}

TEST_CASE("every kernel and size is measured beside CUDA's copy, its launches counted") {
    const std::vector<Row> rows = rows_of(small());
    CHECK(rows.size() == kernel_names.size() * 2 * 3);
    for (const Row& row : rows) {
        CAPTURE(kernel_names[static_cast<std::size_t>(row.kernel)]);
        CHECK(row.figure.wrong == 0);
        CHECK(row.launches ==
              (row.kernel == KernelKind::step ? 5 : 1));  // docs/cuda_engine.md has 6: an all-reduce too
        REQUIRE(row.figure.copy);
        CHECK(row.figure.copy->way == "cudaMemcpyAsync");
        CHECK(row.figure.copy->bytes == (row.bytes + 1) / 2);
        CHECK((row.tensors > 0) == packs(row.kernel));
    }
}

TEST_CASE("spans in runs and steps of many groups, plain and as a graph") {
    Options options = small();
    options.kernels = {KernelKind::adamw, KernelKind::sgd, KernelKind::norm, KernelKind::step};
    options.runs = {1, 10, 300};
    options.groups = {1, 10, 300};
    options.min_bytes = options.max_bytes = std::uint64_t{1} << 18U;
    for (const bool graph : {false, true}) {
        options.graph = graph;
        const std::vector<Row> rows = rows_of(options);
        REQUIRE(rows.size() == 4 * 2 * 3);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const Row& row = rows[i];
            const std::size_t parts = options.runs[i % 3];
            CAPTURE(kernel_names[static_cast<std::size_t>(row.kernel)]);
            CHECK(row.graph == graph);
            CHECK(row.figure.wrong == 0);
            CHECK(row.runs == (takes_runs(row.kernel) ? parts : 0));
            CHECK(row.groups == (takes_runs(row.kernel) ? 0 : parts));
            CHECK(row.launches == (takes_runs(row.kernel) ? 1 : 5));
        }
    }
}

TEST_CASE("300 tensors are packed and unpacked in one launch each") {
    Options options = small();
    options.kernels = {KernelKind::pack, KernelKind::unpack};
    options.min_bytes = options.max_bytes = std::uint64_t{1} << 22U;
    for (const Row& row : rows_of(options)) {
        CHECK(row.tensors == 300);
        CHECK(row.launches == 1);
        CHECK(row.figure.wrong == 0);
    }
}

}  // namespace kernels_standin_test
