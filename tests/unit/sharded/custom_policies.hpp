// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include <shardkit/policy/policies.hpp>

/// Policies as a user may write them: placements that no policy of the library has.
namespace toy {

namespace sk = shardkit;

/// FullShard that keeps the gathered copy until the update makes it stale: one all-gather per step.
struct KeepUntilUpdate : sk::FullShard {
    static constexpr std::string_view name = "keep_until_update";
    static constexpr sk::Release release = sk::Release::at_update;
};

/// Gradients all-reduced as in data parallelism, for a user who wants to look at them; the optimizer is sharded.
struct ReplicateGradients {
    static constexpr std::string_view name = "replicate_gradients";
    static constexpr sk::Placement parameters = sk::Placement::replicated;
    static constexpr sk::Placement gradients = sk::Placement::replicated;
    static constexpr sk::Placement optimizer = sk::Placement::sharded;
    static constexpr sk::Accumulate accumulate = sk::Accumulate::unreduced;
    static constexpr sk::Release release = sk::Release::never;
    static constexpr std::size_t shard_group(std::size_t dp) noexcept { return dp; }
};

/// Sharded parameters, but gradients of all microbatches are added before one reduce-scatter.
struct ReduceOnce : sk::FullShard {
    static constexpr std::string_view name = "reduce_once";
    static constexpr sk::Accumulate accumulate = sk::Accumulate::unreduced;
};

/// ZeRO-2 within pairs of neighbours, replicas across; everything where dp is odd.
struct PairedGradOp : sk::ShardGradOp {
    static constexpr std::string_view name = "paired_grad_op";
    static constexpr std::size_t shard_group(std::size_t dp) noexcept { return dp % 2 == 0 ? 2 : 1; }
};

/// f(values) for every legal pair of rows with shard groups of that many ranks: what the members within groups, the
/// row across groups and Keep can be. `sums` has summation and slices.
template <class F>
void for_each_legal_row(std::size_t shard_group, const F& f, sk::rules::PolicyValues sums = {}) {
    using enum sk::Placement;
    constexpr std::array all{replicated, sharded, partial};
    sk::rules::PolicyValues p = sums;
    p.name = "legal_row";
    p.shard_group = shard_group;
    const auto within = [&](const auto& then) {
        for (const auto parameters : all) {
            p.parameters = parameters;
            for (const auto accumulate : {sk::Accumulate::unreduced, sk::Accumulate::reduced}) {
                p.accumulate = accumulate;
                for (const auto gradients : all) {
                    p.gradients = gradients;
                    for (const auto optimizer : all) {
                        p.optimizer = optimizer;
                        for (const auto release :
                             {sk::Release::never, sk::Release::at_update, sk::Release::at_reshard}) {
                            p.release = release;
                            then();
                        }
                    }
                }
            }
        }
    };
    within([&] {
        for (const auto parameters : all) {
            for (const auto reduced : all) {
                for (const auto states : all) {
                    for (const auto keep : {sk::Keep::none, sk::Keep::secondary}) {
                        p.across_groups = {parameters, reduced, states};
                        p.keep = keep;
                        if (sk::rules::broken_rule(p).empty()) { f(sk::rules::PolicyValues(p)); }
                    }
                }
            }
        }
    });
}
/// The values in words, for failures.
inline std::string words(const sk::rules::PolicyValues& p) {
    const auto row = [](const sk::AxisPlacements& r) {
        return std::string(name(r.parameters)) + ' ' + std::string(name(r.reduced)) + ' ' +
               std::string(name(r.states));
    };
    return row(p.within_groups()) + " within, " + row(p.across_groups) + " across groups of " +
           std::to_string(p.shard_group) + (p.release == sk::Release::at_update ? ", released at the update" : "") +
           (p.keep == sk::Keep::secondary ? ", second shard" : "");
}

}  // namespace toy
