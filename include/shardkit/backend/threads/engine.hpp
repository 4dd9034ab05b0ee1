// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/host/engine.hpp>
#include <shardkit/backend/threads/communicator.hpp>

namespace shardkit::threads {

/// The engine whose ranks are threads of one process: the default, and the reference for tests of other engines.
using Engine = host::Engine;

}  // namespace shardkit::threads
