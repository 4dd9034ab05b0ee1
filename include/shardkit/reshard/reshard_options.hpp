// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/checkpoint/stored_as.hpp>

namespace shardkit {

/// How a state is brought to another mesh; the same on every rank.
struct ReshardOptions {
    /// Names by which the sides find each other's tensors, as those of files.
    checkpoint::TensorNames names = checkpoint::stored_by_path;
    checkpoint::TensorNames to_names{};  ///< those of the destination, where they are others; empty: `names`
    bool states = true;                  ///< false: only parameters and their masters
    bool subset = false;                 ///< true: what both sides have; the report lists the rest
    /// Returns whether the source may have fewer rows of this tensor, as in checkpoint::LoadOptions.
    std::function<bool(std::string_view tensor)> grown{};
    std::size_t staging_bytes = std::size_t{16} << 20U;  ///< of each rank, for what is not sent from where it lies
    /// How long a rank waits for others, in place of the times in its engine's options.
    std::optional<std::chrono::milliseconds> deadline{};
};

/// What a reshard has done; of a rank without destination it lists nothing.
struct ReshardReport {
    std::size_t tensors = 0;            ///< number of tensors that were written
    std::vector<std::string> left{};    ///< tensors that the source lacks
    std::vector<std::string> unused{};  ///< tensors of the source that were not asked for
    std::vector<std::string> grown{};   ///< tensors of which the source had fewer rows
};

}  // namespace shardkit
