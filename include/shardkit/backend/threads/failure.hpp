// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace shardkit::threads {

/// Why ranks cannot go on: the rank that began it, by its number in the world, and the sentence for messages.
struct Failure {
    std::size_t rank = 0;
    std::string text;
};

}  // namespace shardkit::threads
