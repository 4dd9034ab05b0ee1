// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdlib>
#include <optional>

#include "parse.hpp"

namespace program {

/// A process's place in a job, as torchrun and others tell it in the environment: RANK of WORLD_SIZE processes,
/// LOCAL_RANK of LOCAL_WORLD_SIZE on this machine. Without WORLD_SIZE the process is alone.
struct Place {
    std::size_t rank = 0;
    std::size_t ranks = 1;
    std::size_t local_rank = 0;
    std::optional<std::size_t> local_ranks;  ///< not every launcher tells it

    /// Whether it is this process that says what all processes of this machine find wrong alike.
    bool speaks() const noexcept { return local_rank == 0 || !local_ranks; }
    /// Processes of this machine that are known of.
    std::size_t known_local_ranks() const noexcept { return local_ranks.value_or(local_rank + 1); }

    static bool is_launched() noexcept { return std::getenv("WORLD_SIZE") != nullptr; }

    /// @throws InputError that names a variable, its value and what was expected
    static Place from_environment() {
        constexpr std::size_t most = 1'000'000;
        Place place;
        if (!is_launched()) { return place; }
        place.ranks = read("WORLD_SIZE", 1, most);
        place.rank = read("RANK", 0, place.ranks - 1);
        place.local_rank = read("LOCAL_RANK", 0, place.ranks - 1);
        if (std::getenv("LOCAL_WORLD_SIZE") != nullptr) {
            place.local_ranks = read("LOCAL_WORLD_SIZE", place.local_rank + 1, place.ranks);
        }
        return place;
    }

  private:
    static std::size_t read(const char* name, std::size_t least, std::size_t most) {
        const char* const given = std::getenv(name);
        return static_cast<std::size_t>(parse_count(name, given == nullptr ? "" : given, least, most));
    }
};

}  // namespace program
