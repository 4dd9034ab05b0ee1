// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// What hash_values, gradient_norms and verify_replicas say of a model.

namespace shardkit {

/// The hash of one group's values of one kind, over all ranks.
struct ValuesHash {
    std::string path;  ///< the group's path: "blocks.3"
    std::string kind;  ///< "parameter", "master", "exp_avg", "reduced gradient", ...
    std::uint64_t hash = 0;

    friend bool operator==(const ValuesHash&, const ValuesHash&) = default;
};

/// The norms of a parameter's, a group's or a model's gradient.
struct GradientNorm {
    std::string path;       ///< of the group; empty for the model
    std::string parameter;  ///< empty for all of them
    double two = 0;         ///< root of the sum of squares
    double infinity = 0;    ///< the largest magnitude; NaN where there is one
};

/// The norms of a model's gradients, in its order. Frozen parameters have none, those of a skipped group are zero.
struct GradientNorms {
    std::vector<GradientNorm> parameters;
    std::vector<GradientNorm> groups;
    GradientNorm model;
};

/// Values of which some ranks hold other bits than the rest.
struct ReplicaDifference {
    std::string what;                ///< "'blocks.3' parameter 'weight'"
    std::vector<std::size_t> ranks;  ///< all ranks that hold them, by their number in the world
    std::vector<std::size_t> wrong;  ///< those that differ from the majority; empty where there is none
};

/// Reports that ranks hold different bits where they should hold equal ones. The text names the values, the ranks and
/// the user's file and line.
class ReplicaError : public std::runtime_error {
  public:
    ReplicaError(std::vector<ReplicaDifference> differences, const std::string& text)
        : std::runtime_error(text), differences_(std::move(differences)) {}

    /// Returns the differences, in the order of the model.
    const std::vector<ReplicaDifference>& differences() const noexcept { return differences_; }

  private:
    std::vector<ReplicaDifference> differences_;
};

}  // namespace shardkit
