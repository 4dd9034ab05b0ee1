// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "../common/mesh_extents.hpp"
#include "../common/policy_choice.hpp"

namespace mesh_picture {

/// What the command line asks for.
struct Options {
    program::MeshExtents mesh;
    program::PolicyChoice policy;
    std::size_t ep = 0;  // data ranks that share the group, which is one of experts; 0: it is another one
    std::size_t microbatches = 1;
    std::string out;
};

}  // namespace mesh_picture
