// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <utility>

#include <shardkit/sharded/groups.hpp>

namespace shardkit::inline SHARDKIT_BUILD {

/// One training step's hold on the groups of a model: while it lives no second one can start; its end makes
/// them idle again, whether the step was completed or abandoned by an exception. Move-only.
template <class... T>
class StepScope {
  public:
    /// @throws UsageError when one of the groups is in another step; none is touched then
    StepScope(const Groups<T...>& groups, SourceLocation /*where*/) : groups_(groups) {
        std::size_t begun = 0;
        try {
            groups_->for_each([&](auto& layer) {
                layer.state().step().begin(layer.path());
                ++begun;
                layer.state().gradients().restart();
            });
        } catch (...) {
            groups_->for_each([&](auto& layer) {
                if (begun > 0) {
                    layer.state().step().end();
                    --begun;
                }
            });
            throw;
        }
    }
    StepScope(StepScope&& other) noexcept : groups_(std::exchange(other.groups_, std::nullopt)) {}
    StepScope& operator=(StepScope&& other) noexcept {
        StepScope taken(std::move(other));
        std::swap(groups_, taken.groups_);
        return *this;
    }
    ~StepScope() {
        if (groups_) {
            groups_->for_each([](auto& layer) { layer.state().step().end(); });
        }
    }

    bool live() const noexcept { return groups_.has_value(); }
    const Groups<T...>& groups() const { return *groups_; }

  private:
    std::optional<Groups<T...>> groups_;
};

}  // namespace shardkit::inline SHARDKIT_BUILD
