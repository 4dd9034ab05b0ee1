// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

namespace shardkit::nccl {

/// States the oldest NCCL that the engine works with: the first with ncclCommSplit.
inline constexpr int minimum_version = 21800;

static_assert(NCCL_VERSION_CODE >= minimum_version, "shardkit::nccl needs the header of NCCL 2.18 or later");

}  // namespace shardkit::nccl
