// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/file_calls.hpp>
#include <shardkit/checkpoint/stored_as.hpp>

namespace shardkit {

/// What is written beside the next step's work.
enum class Staging : std::uint8_t {
    none,  ///< the memory that the step will change: it waits for the writer
    copy   ///< a copy made by begin_save: no step waits, and a rank's part of the state is there twice
};

/// How a state is saved; the same on every rank.
struct SaveOptions {
    TensorNames names = stored_by_path;
    std::vector<std::pair<std::string, std::string>> strings{};  ///< the user's own texts, given back by load
    std::size_t keep = 0;                                        ///< newest steps that stay; 0: all
    std::uint64_t keep_every = 0;                                ///< besides them multiples of it stay; 0: none
    bool replace = false;                                        ///< a step that is there already
    std::uint64_t max_file_bytes = 5'000'000'000;                ///< more are cut, as Hugging Face's libraries cut
    Staging staging = Staging::none;
    FileCalls* files = nullptr;  ///< null: the machine's file system
};

}  // namespace shardkit
