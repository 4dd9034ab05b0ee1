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

namespace shardkit {

/// What is loaded; the same on every rank.
struct LoadOptions {
    TensorNames names = stored_by_path;
    bool states = true;   ///< false: parameters and their masters alone; optimizer and loss scale stay as they are
    bool subset = false;  ///< what the files lack stays as it is, what they have besides is left out; both are told
    /// Names of tensors, as the files have them, of which the files may have fewer rows: a vocabulary that grew. The
    /// parameter's further rows stay as they are, an optimizer's states of them become zero. None: no tensor.
    std::function<bool(std::string_view tensor)> grown{};
    FileCalls* files = nullptr;  ///< null: the machine's file system
};

/// What a load found.
struct LoadReport {
    std::uint64_t step = 0;                                      ///< of the checkpoint; 0 for a model's files
    std::vector<std::pair<std::string, std::string>> strings{};  ///< those of SaveOptions, or a file's metadata
    std::size_t tensors = 0;                                     ///< read
    std::vector<std::string> left{};                             ///< asked for and not in the files
    std::vector<std::string> unused{};                           ///< in the files and not asked for
    std::vector<std::string> grown{};                            ///< of which the files had fewer rows
};

}  // namespace shardkit
