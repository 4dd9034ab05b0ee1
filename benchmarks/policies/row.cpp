// SPDX-License-Identifier: Apache-2.0
#include "row.hpp"

#include <cmath>

#include "../../examples/common/text_format.hpp"

namespace benchmarks::policies {

VerbTraffic Row::total() const noexcept {
    VerbTraffic all;
    for (const VerbTraffic& verb : traffic) {
        all.calls += verb.calls;
        all.bytes += verb.bytes;
        all.theory.calls += verb.theory.calls;
        all.theory.bytes += verb.theory.bytes;
        all.planned_calls += verb.planned_calls;
        all.planned_bytes += verb.planned_bytes;
    }
    return all;
}

std::vector<std::string> Row::wrong() const {
    const std::string where =
        std::string(program::policy_names[static_cast<std::size_t>(policy)]) + " on " + mesh.describe() + ": ";
    std::vector<std::string> found;
    for (std::size_t i = 0; i < step_verbs.size(); ++i) {
        const VerbTraffic& t = traffic[i];
        const std::string verb(shardkit::name(step_verbs[i]));
        const auto differ = [&](double calls, double bytes, double rounding) {
            return calls != t.calls || std::abs(bytes - t.bytes) > rounding;
        };
        const auto text = [&](const char* source, double calls, double bytes) {
            found.push_back(where + program::formatted("%s: %.17g calls, %.17g bytes; %s says %.17g and %.17g",
                                                       verb.c_str(), t.calls, t.bytes, source, calls, bytes));
        };
        if (differ(t.theory.calls, t.theory.bytes, 1)) { text("theory", t.theory.calls, t.theory.bytes); }
        // The planner rounds both halves of each all-reduce down to whole bytes.
        if (differ(t.planned_calls, t.planned_bytes, 2 * t.calls)) {
            text("the planner", t.planned_calls, t.planned_bytes);
        }
    }
    if (!(difference <= bound)) {
        found.push_back(where +
                        program::formatted("differs from one rank by %.3g, more than %.3g", difference, bound));
    }
    return found;
}

}  // namespace benchmarks::policies
