// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace shardkit::host {
struct Engine;
}  // namespace shardkit::host

namespace shardkit {

/// The engine of containers that name none: one of the host's, chosen at run time. See backend/host/engine.hpp.
using DefaultEngine = host::Engine;

}  // namespace shardkit
