// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/nccl/api.hpp>

namespace shardkit::nccl {

/// Names a communicator of the user's that is used as it is and left alive: the user makes no calls on it while a
/// World does, and destroys it after the World's end.
struct Borrow {
    ncclComm_t comm;
};

}  // namespace shardkit::nccl
