// SPDX-License-Identifier: Apache-2.0
#include "row.hpp"

#include <cmath>

#include "../../examples/common/text_format.hpp"

namespace benchmarks::policies {

namespace {

// A squared double is a whole number of 2^-2148 and below 2^2048, which with room for carries are 66 digits of 32
// bits. A double for each, three counts of infinities and NaN, and one of the elements that are not finite.
constexpr double norm_bytes = (66 + 3 + 1) * sizeof(double);

void all_reduce(TheoryOfVerb& sum, double addends, double result, double ranks,
                const shardkit::engine::Traits& engine, bool across = false) {
    if (ranks < 2) { return; }
    const bool gathered = addends <= static_cast<double>(engine.gathered_all_reduce_addends);
    const double bytes = gathered ? addends * (ranks - 1) : (addends + result) * (ranks - 1) / ranks;
    sum.calls += 1;
    sum.bytes += bytes;
    if (across) { sum.across += bytes; }
}

void add(TheoryOfVerb& sum, double calls, double bytes, double ranks, bool across = false) {
    if (ranks < 2) { return; }
    sum.calls += calls;
    sum.bytes += calls * bytes * (ranks - 1) / ranks;
    if (across) { sum.across += calls * bytes * (ranks - 1) / ranks; }
}

}  // namespace

Theory theory(const Options& o, const program::MeshExtents& mesh, program::PolicyKind policy,
              const shardkit::engine::Traits& engine, const std::vector<std::size_t>& times, bool reduces_last) {
    Theory made{};
    auto& [gathers, scatters, reductions] = made;
    // Also no_shard's buffers are padded for as many shards, whose norms it sums one by one.
    const std::size_t shards = program::has_groups(policy) ? o.hybrid_group_of(mesh) : mesh.dp;
    const bool cut = program::has_groups(policy) && policy != program::PolicyKind::hybrid_shard;
    const auto n = static_cast<double>(shards);
    const auto data_ranks = static_cast<double>(mesh.dp * mesh.cp);
    const auto m = static_cast<double>(o.microbatches);
    const double reduced = reduces_last ? 1 : m;
    const auto element = static_cast<double>(o.element_size());
    const double sum = element < 4 ? 4 : element;
    const std::size_t unit = (cut ? mesh.dp * mesh.cp : shards) * 128 / o.element_size();
    for (std::size_t g = 0; g < o.groups.size(); ++g) {
        const GroupSize& group = o.groups[g];
        const auto gathered = [&](double usual) { return times.empty() ? usual : static_cast<double>(times[g]); };
        const std::size_t units = (group.numel + unit - 1) / unit;
        const auto padded = static_cast<double>(units * unit);
        const double bytes = padded * element;
        switch (policy) {
            case program::PolicyKind::no_shard:
                all_reduce(reductions, bytes, padded * sum, data_ranks, engine);
                continue;
            case program::PolicyKind::shard_optimizer:
                add(scatters, 1, bytes, n);
                add(gathers, gathered(1), bytes, n);
                break;
            case program::PolicyKind::shard_grad_op:
                add(scatters, reduced, bytes, n);
                add(gathers, gathered(1), bytes, n);
                break;
            case program::PolicyKind::full_shard:
            case program::PolicyKind::hybrid_shard:
                add(scatters, reduced, bytes, n);
                add(gathers, gathered(2 * m), bytes, n);
                break;
            case program::PolicyKind::hybrid_optimizer:
            case program::PolicyKind::secondary_shard:
                add(scatters, reduced, bytes, n);
                add(gathers, gathered(2 * m), bytes, n);
                add(scatters, policy == program::PolicyKind::hybrid_optimizer ? 1 : reduced, padded * sum / n,
                    data_ranks / n, true);
                add(gathers, 1, bytes / n, data_ranks / n, true);
                continue;
        }
        all_reduce(reductions, padded * sum / n, padded * sum / n, data_ranks / n, engine, true);
    }
    all_reduce(reductions, norm_bytes, norm_bytes, static_cast<double>(mesh.world()), engine);
    return made;
}

VerbTraffic Row::total() const noexcept {
    VerbTraffic all;
    for (const VerbTraffic& verb : traffic) {
        all.calls += verb.calls;
        all.bytes += verb.bytes;
        all.theory.calls += verb.theory.calls;
        all.theory.bytes += verb.theory.bytes;
        all.across += verb.across;
        all.theory.across += verb.theory.across;
        all.planned_across += verb.planned_across;
        all.planned_calls += verb.planned_calls;
        all.planned_bytes += verb.planned_bytes;
    }
    return all;
}

std::vector<std::string> Row::wrong() const {
    const std::string where = std::string(program::policy_names[static_cast<std::size_t>(policy)]) + " on " +
                              mesh.describe() + (schedule == "none" ? "" : ", " + schedule) + ": ";
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
        const auto differs_across = [&](const char* source, double across, double rounding) {
            if (std::abs(across - t.across) <= rounding) { return; }
            found.push_back(where + program::formatted("%s: %.17g bytes across shard groups; %s says %.17g",
                                                       verb.c_str(), t.across, source, across));
        };
        differs_across("theory", t.theory.across, 1);
        differs_across("the planner", t.planned_across, 2 * t.calls);
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
