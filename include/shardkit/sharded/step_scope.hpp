// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <utility>

#include <shardkit/sharded/groups.hpp>

namespace shardkit::inline SHARDKIT_BUILD {

/// One training step's hold on the groups of a model: while it lives no second one can start; its end makes
/// them idle again, whether the step was completed or abandoned by an exception. Move-only.
template <class... T>
class StepScope {
  public:
    StepScope(const Groups<T...>& groups, SourceLocation /*where*/) : groups_(groups) {
        groups_->for_each([](auto& layer) {
            layer.state().step().begin(layer.path());
            layer.state().gradients().restart();
        });
    }
    StepScope(StepScope&& other) noexcept : groups_(std::exchange(other.groups_, std::nullopt)) {}
    StepScope& operator=(StepScope&& other) noexcept {
        std::swap(groups_, other.groups_);
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
