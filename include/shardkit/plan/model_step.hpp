// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <shardkit/core/constexpr_vector.hpp>
#include <shardkit/machine/batch_steps.hpp>
#include <shardkit/machine/step_machine.hpp>

namespace shardkit::detail {

/// The state of a step of a model: one GroupStep for each group, and that of its batches of whole matrices.
class ModelStep {
  public:
    /// Begins a step in steady state.
    SHARDKIT_CONSTEXPR_VECTOR explicit ModelStep(std::span<const GroupDescription> groups) : rows_(rows_of(groups)) {
        for (const GroupRows& rows : rows_) { groups_.push_back(at_rest(rows)); }
    }

    constexpr std::size_t size() const noexcept { return rows_.size(); }
    SHARDKIT_CONSTEXPR_VECTOR const GroupRows& rows(std::size_t group) const noexcept { return rows_[group]; }
    SHARDKIT_CONSTEXPR_VECTOR GroupStep& operator[](std::size_t group) noexcept { return groups_[group]; }
    SHARDKIT_CONSTEXPR_VECTOR const GroupStep& operator[](std::size_t group) const noexcept { return groups_[group]; }

    SHARDKIT_CONSTEXPR_VECTOR Applied apply(Act act, std::size_t group, std::uint32_t microbatch) {
        const Applied made = apply_act(groups_[group], act, rows_[group], microbatch);
        groups_[group] = made.next;
        return made;
    }
    SHARDKIT_CONSTEXPR_VECTOR Applied apply(Act act, std::size_t group) {
        const Applied made = apply_act(groups_[group], act, rows_[group]);
        groups_[group] = made.next;
        return made;
    }

    SHARDKIT_CONSTEXPR_VECTOR BatchSteps& batches() noexcept { return batches_; }

  private:
    std::vector<GroupRows> rows_;
    std::vector<GroupStep> groups_;
    BatchSteps batches_;
};

}  // namespace shardkit::detail
