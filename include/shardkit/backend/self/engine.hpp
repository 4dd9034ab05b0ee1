// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/host/engine.hpp>
#include <shardkit/backend/self/communicator.hpp>

namespace shardkit::self {

/// The engine of a single rank in the caller's thread; nothing is communicated.

}  // namespace shardkit::self
