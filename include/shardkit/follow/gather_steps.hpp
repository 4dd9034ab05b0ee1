// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <shardkit/core/source_location.hpp>
#include <shardkit/follow/follow.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/spi/ranks.hpp>

namespace shardkit::schedule SHARDKIT_FACE {

SHARDKIT_CORE_INLINE std::vector<MeasuredStep> gather_steps(Rank& rank, const MeasuredStep& mine,
                                                            std::chrono::steady_clock::time_point together,
                                                            SourceLocation where) {
    using Seconds = std::chrono::duration<double>;
    const engine::CallSite site{where, detail::subject_of(rank.world(), "the ranks' measured steps")};
    const std::size_t ranks = rank.world_size();
    const std::array of_step{Seconds(mine.began - together).count(), mine.seconds, mine.compute, mine.communication,
                             static_cast<double>(mine.spans.size())};
    const auto steps = detail::gather_values(rank, of_step, site);
    double most = 0;
    for (std::size_t r = 0; r < ranks; ++r) { most = std::max(most, steps[(r + 1) * of_step.size() - 1]); }
    constexpr std::size_t fields = 4;
    std::vector<double> of_spans;
    for (const StepSpan& span : mine.spans) {
        of_spans.insert(of_spans.end(), {static_cast<double>(span.kind), static_cast<double>(span.op),
                                         span.time.begin, span.time.end});
    }
    of_spans.resize(fields * static_cast<std::size_t>(most));
    const auto spans = detail::gather_values(rank, of_spans, site);
    std::vector<MeasuredStep> all(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
        const double* at = steps.data() + r * of_step.size();
        const auto since = std::chrono::duration_cast<std::chrono::steady_clock::duration>(Seconds(at[0]));
        all[r] = {{at[1], at[2], at[3]}, together + since, {}};
        const auto count = static_cast<std::size_t>(at[4]);
        at = spans.data() + r * of_spans.size();
        for (std::size_t s = 0; s < count; ++s, at += fields) {
            all[r].spans.push_back({static_cast<SpanKind>(static_cast<std::uint8_t>(at[0])),
                                    static_cast<std::size_t>(at[1]),
                                    {at[2], at[3]}});
        }
    }
    return all;
}

}  // namespace shardkit::schedule SHARDKIT_FACE
