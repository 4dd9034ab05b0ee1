// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <shardkit/backend/nccl/api.hpp>

namespace shardkit::nccl::detail {

/// Calls ncclCommShrink by the ranks in `lost`, into a communicator of that configuration. Needs NCCL 2.27.3.
/// `abort`: ends first what the parent has under way.
inline ncclResult_t shrink([[maybe_unused]] ncclComm_t parent, [[maybe_unused]] std::span<const std::size_t> lost,
                           [[maybe_unused]] bool abort, [[maybe_unused]] ncclConfig_t config,
                           [[maybe_unused]] ncclComm_t* made) {
#if NCCL_VERSION_CODE >= 22703
    std::vector<int> ranks(lost.begin(), lost.end());
    return ncclCommShrink(parent, ranks.data(), static_cast<int>(ranks.size()), made, &config,
                          abort ? NCCL_SHRINK_ABORT : NCCL_SHRINK_DEFAULT);
#else
    return ncclInvalidUsage;
#endif
}

/// Calls ncclCommRevoke, from NCCL 2.28.7 on, which ends at once what the communicator has under way. False where it
/// does not.
inline bool revoke([[maybe_unused]] ncclComm_t comm) noexcept {
#if NCCL_VERSION_CODE >= 22807
    int version = 0;
    if (ncclGetVersion(&version) == ncclSuccess && version >= 22807) {
        const ncclResult_t code = ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT);
        return code == ncclSuccess || code == ncclInProgress;
    }
#endif
    return false;
}

}  // namespace shardkit::nccl::detail
