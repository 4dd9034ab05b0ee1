// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace benchmarks::policies {

/// A group of the model: what one window opens.
struct GroupSize {
    std::string path;
    std::size_t numel = 0;
};

}  // namespace benchmarks::policies
