// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdlib>

#include "parse.hpp"

namespace program {

/// A process's place in a job, as torchrun and others tell it in the environment: RANK of WORLD_SIZE processes,
/// LOCAL_RANK of LOCAL_WORLD_SIZE on this machine. Without WORLD_SIZE the process is alone.
struct Place {
    std::size_t rank = 0;
    std::size_t ranks = 1;
    std::size_t local_rank = 0;
    std::size_t local_ranks = 1;  ///< those that are known of: LOCAL_RANK + 1 without LOCAL_WORLD_SIZE

    static bool is_launched() noexcept { return std::getenv("WORLD_SIZE") != nullptr; }

    /// @throws InputError that names a variable, its value and what was expected
    static Place from_environment() {
        constexpr std::size_t most = 1'000'000;
        Place place;
        if (!is_launched()) { return place; }
        place.ranks = read("WORLD_SIZE", 1, most, "");
        place.rank = read("RANK", 0, place.ranks - 1, "");
        place.local_rank = read("LOCAL_RANK", 0, place.ranks - 1, "");
        place.local_ranks =
            read("LOCAL_WORLD_SIZE", place.local_rank + 1, place.ranks, std::to_string(place.local_rank + 1).c_str());
        return place;
    }

  private:
    static std::size_t read(const char* name, std::size_t least, std::size_t most, const char* otherwise) {
        const char* const given = std::getenv(name);
        return static_cast<std::size_t>(parse_count(name, given == nullptr ? otherwise : given, least, most));
    }
};

}  // namespace program
