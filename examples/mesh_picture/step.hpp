// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace mesh_picture {

/// A FullShard step of three layers on three streams: what runs when, what waits, and which bytes of the arena are
/// whose.
std::string draw_step();

}  // namespace mesh_picture
