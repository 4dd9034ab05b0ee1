// SPDX-License-Identifier: Apache-2.0
// What NCCL's header declares, and which library is loaded: for tests/gpu/nccl_versions.
#include <cstddef>
#include <cstdio>

#include <cuda_runtime_api.h>
#include <nccl.h>

#ifndef ONLY_STRUCTURES
#include <shardkit/backend/nccl/world.hpp>

/// Needs all calls of NCCL that the engine may make; not called, as there may be no GPU.
void make_world(const shardkit::nccl::Options& options) {
    shardkit::nccl::World world(shardkit::nccl::UniqueId::create(), 1, 0, options);
    shardkit::nccl::World survivors(shardkit::nccl::Survivors{world, {}});
}
#endif

int main() {
    std::printf("built with %d\n", NCCL_VERSION_CODE);
    std::printf("ncclConfig_t %zu blocking %zu splitShare %zu", sizeof(ncclConfig_t),
                offsetof(ncclConfig_t, blocking), offsetof(ncclConfig_t, splitShare));
#if NCCL_VERSION_CODE >= 22703
    std::printf(" commName %zu CTAPolicy %zu nvlsCTAs %zu", offsetof(ncclConfig_t, commName),
                offsetof(ncclConfig_t, CTAPolicy), offsetof(ncclConfig_t, nvlsCTAs));
#endif
#if NCCL_VERSION_CODE >= 23102
    std::printf(" graphUsageMode %zu launchOrderImplicit %zu", offsetof(ncclConfig_t, graphUsageMode),
                offsetof(ncclConfig_t, launchOrderImplicit));
    std::printf("\nncclCollConfig_t %zu algSelection %zu forceAlgSelection %zu userProfilerTag %zu",
                sizeof(ncclCollConfig_t), offsetof(ncclCollConfig_t, algSelection),
                offsetof(ncclCollConfig_t, forceAlgSelection), offsetof(ncclCollConfig_t, userProfilerTag));
#if NCCL_VERSION_CODE >= 23200
    std::printf(" launchCompletionEvent %zu graphStreamOrdering %zu nvlsHostMode %zu of %d %d %d",
                offsetof(ncclCollConfig_t, launchCompletionEvent), offsetof(ncclConfig_t, graphStreamOrdering),
                offsetof(ncclConfig_t, nvlsHostMode), static_cast<int>(ncclNvlsHostModeDisableTransport),
                static_cast<int>(ncclNvlsHostModeDisableSymmetricMultimem),
                static_cast<int>(ncclNvlsHostModeDisable));
#endif
    const ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
    std::printf(" is %zu %x %u %d", config.size, config.magic, config.version, config.forceAlgSelection);
#endif
    std::printf("\n");
#ifndef ONLY_STRUCTURES
    std::printf("library %s\n", shardkit::nccl::version_text(shardkit::nccl::library_version()).c_str());
#endif
}
