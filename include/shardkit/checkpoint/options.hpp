// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/file_calls.hpp>
#include <shardkit/checkpoint/stored_as.hpp>

namespace shardkit::checkpoint {

/// A committed checkpoint of a run.
struct Folder {
    std::string path;
    std::uint64_t step = 0;
    std::vector<std::string>
        skipped{};  ///< entries beside it that are no checkpoint or could not be removed, and why
};

/// What to load; the same on every rank.
struct LoadOptions {
    TensorNames names = stored_by_path;
    bool states = true;   ///< false: only parameters and their masters; optimizer and loss scale stay unchanged
    bool subset = false;  ///< true: load what both sides have; the report lists the rest
    /// Returns whether the files may have fewer rows of this tensor (as the files name it), for a vocabulary that has
    /// grown. The parameter's further rows stay unchanged, an optimizer's states of them become zero. Empty: no
    /// tensor may.
    std::function<bool(std::string_view tensor)> grown{};
    FileCalls* files = nullptr;  ///< null: the machine's file system
};

/// The result of a load.
struct LoadReport {
    std::uint64_t step = 0;                                      ///< the checkpoint's step; 0 for a model's files
    std::vector<std::pair<std::string, std::string>> strings{};  ///< SaveOptions::strings, or a file's metadata
    std::size_t tensors = 0;                                     ///< number of tensors that were read
    std::vector<std::string> left{};                             ///< tensors that the files lack
    std::vector<std::string> unused{};                           ///< tensors of the files that were not asked for
    std::vector<std::string> grown{};                            ///< tensors of which the files had fewer rows
};

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
