// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/backend/cuda/device_count.hpp>
#include <shardkit/core/error.hpp>

namespace shardkit::gpu {

/// The GPU of this machine's rank number `local_rank`: one rank per GPU.
/// @throws std::invalid_argument when this machine has too few GPUs; Error when it has none
inline int local_device(std::size_t local_rank, SourceLocation where = SourceLocation::current()) {
    const int count = device_count(where);
    if (local_rank >= static_cast<std::size_t>(count)) {
        throw_invalid_argument(where, "local rank ", local_rank, ", but this machine has ", count,
                               count == 1 ? " GPU" : " GPUs", "; expected a local rank below ", count);
    }
    return static_cast<int>(local_rank);
}

}  // namespace shardkit::gpu
