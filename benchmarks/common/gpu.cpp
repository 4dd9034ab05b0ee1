// SPDX-License-Identifier: Apache-2.0
#include "machine.hpp"

#include <array>
#include <cstdio>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/nccl/api.hpp>

#include "require_gpus.hpp"

namespace benchmarks {

namespace {

/// The one line that the driver's own tool prints. CUDA itself knows only which CUDA the driver is for.
std::string driver_version() {
    std::array<char, 64> line{};
    std::FILE* const tool =
        popen("nvidia-smi --id=0 --query-gpu=driver_version --format=csv,noheader 2>/dev/null", "r");
    if (tool == nullptr) { return "unknown"; }
    const bool answered = std::fgets(line.data(), static_cast<int>(line.size()), tool) != nullptr;
    if (pclose(tool) != 0 || !answered) { return "unknown"; }
    const std::string text(line.data());
    return text.substr(0, text.find('\n'));
}

std::string runtime_version() {
    int version = 0;
    shardkit::gpu::detail::check(cudaRuntimeGetVersion(&version), "cudaRuntimeGetVersion");
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

Gpu read_gpu(const std::string& flag, std::size_t number, std::size_t wanted) {
    require_gpus(flag, number, wanted);
    cudaDeviceProp properties{};
    shardkit::gpu::detail::check(cudaGetDeviceProperties(&properties, static_cast<int>(number)),
                                 "cudaGetDeviceProperties");
    Gpu gpu;
    gpu.name = properties.name;
    gpu.memory = properties.totalGlobalMem;
    gpu.driver = driver_version();
    gpu.cuda = runtime_version();
    gpu.nccl = shardkit::nccl::version_text(shardkit::nccl::library_version());
    return gpu;
}

}  // namespace benchmarks
