// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shardkit::checkpoint {

/// A committed checkpoint of a run.
struct Folder {
    std::string path;
    std::uint64_t step = 0;
    std::vector<std::string>
        skipped{};  ///< entries beside it that are no checkpoint or could not be removed, and why
};

}  // namespace shardkit::checkpoint
