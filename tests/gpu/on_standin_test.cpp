// SPDX-License-Identifier: Apache-2.0
// The tests of several ranks on a GPU, on the stand-in: ranks are threads, and what a kernel does for its indices is
// a loop of the stream's. So a GPU that is lent for minutes does not show what is wrong with the tests.
#define SHARDKIT_TEST_ON_STANDIN

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/backend/cub/kernels.hpp>

#include "unit/backend/cub/serial_kernels.hpp"
#include "unit/backend/nccl/gpu_ranks.hpp"

namespace shardkit::gpu::detail {

template <class Work>
void DeviceLaunch::operator()(std::uint64_t count, const Work& work, std::string_view /*kernel*/) const {
    host_functions::LaunchedStream(stream_).submit([count, work] {
        for (std::uint64_t i = count; i > 0; --i) { work(i - 1); }
    });
}
template <class First, class Work>
void DeviceLaunch::behind(const First& first, std::uint64_t count, const Work& work,
                          std::string_view /*kernel*/) const {
    host_functions::LaunchedStream(stream_).submit([first, count, work] {
        const std::span<const double> reads = first.reads();
        const std::vector<double> read(reads.begin(), reads.end());
        first(read.data());
        for (std::uint64_t i = count; i > 0; --i) { work(i - 1); }
    });
}
template <FloatingElement T>
void norm_partial(const gpu::TimelineRef& stream, std::span<const engine::NormPiece<T>> pieces, IndexRange positions,
                  const double* scale, double* into) {
    host_functions::LaunchedStream(stream).submit(
        [=] { test::SerialKernels::norm_partial({}, pieces, positions, scale, into); });
}

}  // namespace shardkit::gpu::detail

void preload_trainers() {}

#include "nccl_ranks_test.cu"
#include "nccl_trainers_test.cu"

namespace on_standin_test {

TEST_CASE("every case of ranks was run by a test of several ranks") {
    for (const auto& each : rank_processes::rank_cases()) {
        CAPTURE(std::string(each.first));
        CHECK(each.second.ran);
    }
}

}  // namespace on_standin_test
