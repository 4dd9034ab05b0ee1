// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace mesh_picture {

/// What the command line asks for.
struct Options {
    std::size_t dp = 1;
    std::size_t tp = 1;
    std::size_t cp = 1;
    std::string policy = "full_shard";  ///< a policy's name
    std::size_t hybrid_group = 0;       ///< ranks in a group of hybrid_shard
    std::size_t microbatches = 1;
    std::string out;

    std::string mesh_text() const { return std::to_string(dp) + "x" + std::to_string(tp) + "x" + std::to_string(cp); }
    std::string policy_text() const {
        return hybrid_group == 0 ? policy : policy + ":" + std::to_string(hybrid_group);
    }
};

}  // namespace mesh_picture
