// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/checkpoint_state.hpp>
#include <shardkit/checkpoint/saved_group.hpp>
#include <shardkit/checkpoint/state_to_save_or_load.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/spi/groups.hpp>
#include <shardkit/spi/optimizers.hpp>

// Defines the members of checkpoint::State.

namespace shardkit::detail {

/// Gives the optimizers their numbers, in the order of `capture`.
inline void give(Change change, const std::vector<Optimizer*>& optimizers, const SavedState& numbers,
                 SourceLocation where) {
    std::vector<GroupProgress> progress;
    for (const SavedProgress& each : numbers.progress) { progress.push_back(each.progress); }
    const GroupProgress* left = progress.data();
    for (Optimizer* const optimizer : optimizers) {
        left = spi::OptimizerContents(*optimizer, where).set_progress(left, change);
    }
}
/// Returns what lets the host wait for streams of a World that has lost ranks since, if the values are those before
/// the loss.
inline std::shared_ptr<void> trust_waits(const Rank& rank, const Model& model, SourceLocation where) {
    const std::array streams{rank.communication_stream(), rank.compute_stream()};
    if (host_reads(streams[1])) { return nullptr; }
    for (Group& group : spi::groups(model, where)) {
        if (!streams[1].was_waited_for(group.parameters().updated())) { return nullptr; }
    }
    for (const auto& stream : streams) { stream.trust(true); }
    return {nullptr, [streams](void*) {
                for (const auto& stream : streams) { stream.trust(false); }
            }};
}

}  // namespace shardkit::detail

namespace shardkit::checkpoint SHARDKIT_FACE {

SHARDKIT_CORE_INLINE State::State(const Model& model, SourceLocation where)
    : rank_(&detail::rank_of(model, where)), model_(model) {
    std::set<std::string_view> paths;
    for (const detail::Group& group : spi::groups(model, where)) {
        if (paths.insert(group.path()).second) { continue; }
        throw_invalid_argument(where, "checkpoint::State: two groups have the path '", group.path(), "'");
    }
}
SHARDKIT_CORE_INLINE State& State::add(Optimizer& optimizer, SourceLocation where) {
    const auto identities = [&](const Model& groups) {
        detail::List<std::size_t> list;
        for (const detail::Group& group : spi::groups(groups, where)) { list.push_back(group.identity()); }
        std::sort(list.begin(), list.end());
        return list;
    };
    const auto require = [&](const Model& among, bool expected, const char* text) {
        const detail::List<std::size_t> known = identities(among);
        for (const detail::Group& group : spi::groups(optimizer.model(), where)) {
            if (std::binary_search(known.begin(), known.end(), group.identity()) == expected) { continue; }
            throw_invalid_argument(where, "checkpoint::State: '", group.path(), "' of the optimizer ", text);
        }
    };
    require(model_, true, "is no group of the model");
    for (Optimizer* const other : optimizers_) {
        require(other->model(), false,
                "is another optimizer's too: expected one for each group, as a CombinedOptimizer is");
    }
    optimizers_.push_back(&optimizer);
    return *this;
}
SHARDKIT_CORE_INLINE State& State::add(LossScale& loss_scale, std::string name, SourceLocation where) {
    for (const auto& [known, at] : loss_scales_) {
        if (known == name) {
            throw_invalid_argument(where, "checkpoint::State: two loss scales are called '", name,
                                   "', expected a name for each: add(loss_scale, name)");
        }
    }
    loss_scales_.emplace_back(std::move(name), &loss_scale);
    return *this;
}
SHARDKIT_CORE_INLINE State& State::blob(std::string name, std::vector<std::uint8_t>& bytes, SourceLocation where) {
    for (const auto& [known, at] : blobs_) {
        if (known == name) { throw_invalid_argument(where, "checkpoint::State: two blobs are called '", name, "'"); }
    }
    blobs_.emplace_back(std::move(name), &bytes);
    return *this;
}

inline detail::SavedState State::capture(SourceLocation where) const {
    detail::SavedState state;
    for (detail::Group& group : spi::groups(model_, where)) {
        state.groups.push_back(std::make_unique<detail::SavedGroup>(group));
    }
    state.trust = detail::trust_waits(*rank_, model_, where);
    const auto& groups = state.groups;
    for (const auto& group : groups) { group->list_own(); }
    std::size_t number = 0;  // of a group, which is found fastest in the optimizer's order
    for (Optimizer* const optimizer : optimizers_) {
        const spi::OptimizerContents contents(*optimizer, where);
        const auto progress = contents.progress();
        std::size_t next = 0;
        for (const auto& of : contents.held()) {
            for (std::size_t tried = 0; &groups[number]->group() != of.group; number = (number + 1) % groups.size()) {
                if (tried++ < groups.size()) { continue; }
                throw_usage_error(where, "checkpoint::State: '", of.group->path(),
                                  "' is no group of the model, and the optimizer that has it was assigned to since "
                                  "the State was made: expected an optimizer of groups of the model, or a State "
                                  "that is made anew");
            }
            groups[number]->list(of);
            state.progress.push_back({number, progress[next++]});
        }
    }
    for (const auto& [name, loss_scale] : loss_scales_) {
        const LossScaleState scale = loss_scale->state(where);
        const std::string begin = detail::concat("loss_scale.", name, name.empty() ? "" : ".");
        state.scalars.push_back({begin + "value", true, std::bit_cast<std::uint64_t>(scale.value())});
        // The upper half holds the overflows that a hysteresis counts.
        state.scalars.push_back(
            {begin + "clean_steps", false, scale.clean_steps() | std::uint64_t{scale.overflows()} << 32U});
    }
    state.blobs = blobs_;
    rank_->communication_stream().synchronize();
    rank_->compute_stream().synchronize();
    return state;
}
SHARDKIT_CORE_INLINE std::uint64_t State::version(SourceLocation where) const {
    std::uint64_t least = UINT64_MAX;
    for (const detail::Group& group : spi::groups(model_, where)) { least = std::min(least, group.version()); }
    return least;
}
inline void State::check_numbers(const detail::SavedState& numbers, SourceLocation where) const {
    detail::give(detail::Change::check, optimizers_, numbers, where);
}
inline void State::restore_numbers(const detail::SavedState& numbers, SourceLocation where) const {
    detail::give(detail::Change::make, optimizers_, numbers, where);
    for (std::size_t i = 0; i < loss_scales_.size(); ++i) {
        const std::uint64_t counts = numbers.scalars[2 * i + 1].bits;
        loss_scales_[i].second->restore(std::bit_cast<double>(numbers.scalars[2 * i].bits),
                                        static_cast<std::uint32_t>(counts), static_cast<std::uint32_t>(counts >> 32U),
                                        where);
    }
}

}  // namespace SHARDKIT_FACE
