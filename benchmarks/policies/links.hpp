// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <shardkit/plan/time_model.hpp>

#include "row.hpp"

namespace benchmarks::policies {

/// A collective that was timed.
struct LinkSample {
    double messages = 0;  ///< that follow each other in a ring
    double bytes = 0;     ///< that a rank moves
    double seconds = 0;
};

struct FittedLink {
    shardkit::LinkModel link;
    std::size_t samples = 0;
    double error = 0;  ///< mean of |predicted - measured| / measured over the samples
};

/// The link that predicts the samples best: least squares of relative errors, since sizes span decades; neither
/// latency nor the time of a byte below 0.
/// @throws std::invalid_argument unless at least two samples differ in bytes and take time
FittedLink fit_link(std::span<const LinkSample> samples);

/// Of each of step_verbs.
struct FittedLinks {
    std::array<FittedLink, step_verbs.size()> verbs;
    std::string source;  ///< in words

    shardkit::TimeModel::Links links() const noexcept {
        shardkit::TimeModel::Links all{};
        for (std::size_t i = 0; i < step_verbs.size(); ++i) {
            all[static_cast<std::size_t>(step_verbs[i])] = verbs[i].link;
        }
        return all;
    }
};

/// Links fitted to what `benchmarks/run collectives --json` wrote into these files.
/// `engine`: that they must be of; without one all must be of the first file's. The source in words says where ranks
/// shared processors.
/// @throws InputError that names the file for what cannot be read, is no such file or of another engine, and without
///         two sizes of each of step_verbs in groups of at least two ranks
FittedLinks fit_files(const std::vector<std::string>& files, std::optional<EngineKind> engine);

}  // namespace benchmarks::policies
