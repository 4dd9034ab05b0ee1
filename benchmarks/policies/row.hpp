// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "options.hpp"
#include "spread.hpp"
#include "theory.hpp"

namespace benchmarks::policies {

/// Collectives of one verb in one step: as the engine counted them, by the closed form, and as planned. Bytes are
/// those moved by a rank, the mean over ranks.
struct VerbTraffic {
    double calls = 0;
    double bytes = 0;
    TheoryOfVerb theory;
    double planned_calls = 0;
    double planned_bytes = 0;
};

/// One policy on one mesh. Times are over all ranks, as world_seconds has them.
struct Row {
    program::MeshExtents mesh;
    program::PolicyKind policy{};
    std::size_t shard_group = 1;  ///< data-parallel ranks that share one copy
    Spread step;
    Spread compute;
    Spread communication;
    std::array<VerbTraffic, step_verbs.size()> traffic;  ///< in the order of step_verbs
    std::uint64_t peak_bytes = 0;                        ///< the largest of all ranks
    std::uint64_t planned_bytes = 0;
    double difference = 0;            ///< largest from one rank, over the larger of 1 and the element
    double bound = 0;                 ///< of that difference
    std::optional<double> predicted;  ///< seconds of the communication; none without links

    double exposed() const noexcept { return (step.median - compute.median) / step.median; }
    /// (predicted - measured) / measured; none where nothing is communicated
    std::optional<double> prediction_error() const noexcept {
        if (!predicted || communication.median <= 0) { return std::nullopt; }
        return *predicted / communication.median - 1;
    }
    VerbTraffic total() const noexcept;
    /// What the data says that must not be: differences in calls or bytes, and from one rank.
    std::vector<std::string> wrong() const;
};

}  // namespace benchmarks::policies
