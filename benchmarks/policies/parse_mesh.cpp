// SPDX-License-Identifier: Apache-2.0
#include "parse_mesh.hpp"

#include <charconv>

#include "../common/parse.hpp"

namespace benchmarks::policies {

namespace {

MeshExtents parse_mesh(const std::string& flag, const std::string& given) {
    std::size_t extents[3]{};
    const char* at = given.data();
    const char* const end = at + given.size();
    for (std::size_t i = 0; i < 3; ++i) {
        const auto [stop, error] = std::from_chars(at, end, extents[i]);
        const bool separated = i == 2 ? stop == end : stop != end && *stop == 'x';
        if (error != std::errc{} || !separated || extents[i] == 0) {
            throw bad_flag(flag, given, "DPxTPxCP, three whole numbers of at least 1, for example 2x1x1; or a list");
        }
        at = stop + 1;
    }
    const MeshExtents mesh{extents[0], extents[1], extents[2]};
    for (const std::size_t extent : extents) {
        if (extent > most_ranks || mesh.world() > most_ranks) {
            throw bad_flag(flag, given, "at most " + std::to_string(most_ranks) + " ranks");
        }
    }
    return mesh;
}

}  // namespace

std::vector<MeshExtents> parse_meshes(const std::string& flag, const std::string& given) {
    std::vector<MeshExtents> meshes;
    for (const std::string& part : split_list(given)) { meshes.push_back(parse_mesh(flag, part)); }
    return meshes;
}

}  // namespace benchmarks::policies
