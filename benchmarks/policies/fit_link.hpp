// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include <shardkit/plan/time_model.hpp>

#include "theory.hpp"

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

}  // namespace benchmarks::policies
