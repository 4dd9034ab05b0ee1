// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

namespace benchmarks::policies {

std::size_t Options::hybrid_group_of(const program::MeshExtents& mesh) const noexcept {
    if (hybrid_group > 0) { return hybrid_group; }
    if (!predict.empty()) {
        std::size_t group = links.ranks_per_node / (mesh.tp * mesh.cp);
        if (group == 0) { group = 1; }
        while (mesh.dp % group != 0) { --group; }
        return group;
    }
    std::size_t group = mesh.dp > 1 ? 2 : 1;
    while (mesh.dp % group != 0) { ++group; }
    return group;
}

}  // namespace benchmarks::policies
