// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/checkpoint_state.hpp>
#include <shardkit/compiled/checkpoint_interface.hpp>
#include <shardkit/compiled/core.hpp>

// A checkpoint's state of the core.

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

class SavedStateOf final : public SavedState {
  public:
    SavedStateOf(const Model& model, SourceLocation where) : core(model, where) {}
    explicit SavedStateOf(checkpoint::State state) : core(std::move(state)) {}

    SavedState* copy() const override { return new SavedStateOf(core); }
    std::uint64_t version(SourceLocation where) const override {
        return shardkit::detail::Access::version(core, where);
    }
    void add(Optimizer& optimizer, SourceLocation where) override { core.add(optimizer, where); }
    void add(LossScale& loss_scale, std::string name, SourceLocation where) override {
        core.add(loss_scale, std::move(name), where);
    }
    void add(std::string name, std::vector<std::uint8_t>& blob, SourceLocation where) override {
        core.blob(std::move(name), blob, where);
    }

    checkpoint::State core;
};

inline const checkpoint::State& core_of(const SavedState& state) noexcept {
    return static_cast<const SavedStateOf&>(state).core;
}

}  // namespace SHARDKIT_CHECKED_BUILD
