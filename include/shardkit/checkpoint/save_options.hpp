// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/file_calls.hpp>
#include <shardkit/checkpoint/stored_as.hpp>

namespace shardkit::checkpoint {

/// What a background save reads while the next step runs.
enum class Staging : std::uint8_t {
    none,  ///< the state itself: the step waits for the writer before it changes it
    copy   ///< a copy made by begin_save: no step waits, but a rank's part of the state is in memory twice
};

/// How to save a state; the same on every rank.
struct SaveOptions {
    TensorNames names = stored_by_path;
    std::vector<std::pair<std::string, std::string>> strings{};  ///< the user's own texts, which load returns
    std::size_t keep = 0;                                        ///< number of newest steps to keep; 0: all
    std::uint64_t keep_every = 0;                                ///< also keep multiples of this step; 0: none
    bool replace = false;                                        ///< whether to replace a step that exists already
    bool set_aside = false;                                      ///< whether to rename what is no step at its name
    std::uint64_t max_file_bytes = 5'000'000'000;                ///< split beyond it, as by Hugging Face's libraries
    Staging staging = Staging::none;
    FileCalls* files = nullptr;  ///< null: the machine's file system
};

}  // namespace shardkit::checkpoint
