// SPDX-License-Identifier: Apache-2.0
// A program of somebody else: two translation units, found by each of the ways in which people get headers.
#include <cstdio>

#include <shardkit/shardkit.hpp>

#include "use.hpp"

int main() {
    constexpr shardkit::DeviceMesh<2, 1, 1> mesh;
    if (static_cast<int>(mesh.size()) != count_in_another_unit()) {
        std::puts("the two units disagree");
        return 1;
    }
    std::puts("consumed");
}
