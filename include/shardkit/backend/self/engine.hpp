// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/backend/self/communicator.hpp>
#include <shardkit/verbs/communicator.hpp>

namespace shardkit::self {

/// The engine of a single rank in the caller's thread; nothing is communicated.

}  // namespace shardkit::self
