// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/checkpoint_state.hpp>
#include <shardkit/checkpoint/load.hpp>
#include <shardkit/checkpoint/roll_back.hpp>
#include <shardkit/checkpoint/save.hpp>
#include <shardkit/checkpoint/save_model.hpp>
#include <shardkit/compiled/checkpoint_interface.hpp>
#include <shardkit/compiled/core.hpp>

// Defines the functions of checkpoint_interface.hpp.

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

class SavedState {
  public:
    checkpoint::State<Engine> core;
};
class PendingSave {
  public:
    checkpoint::PendingSave core;
};

SavedState* make_state(const Groups& model, SourceLocation where) {
    return new SavedState{checkpoint::State<Engine>(ModelOf<AllPrecisions>(model.core).model(), where)};
}
void end(SavedState* state) noexcept { delete state; }
void add(SavedState& state, Optimizer& optimizer, SourceLocation where) { state.core.add(optimizer.core(), where); }
void add(SavedState& state, LossScale& loss_scale, std::string name, SourceLocation where) {
    state.core.add(loss_scale.core, std::move(name), where);
}
void add(SavedState& state, std::string name, std::vector<std::uint8_t>& blob, SourceLocation where) {
    state.core.blob(std::move(name), blob, where);
}
checkpoint::Folder save(Context& rank, const std::string& folder, std::uint64_t step, const SavedState& state,
                        const checkpoint::SaveOptions& options, SourceLocation where) {
    return checkpoint::save(rank.core, folder, step, state.core, options, where);
}
PendingSave* begin_save(Context& rank, const std::string& folder, std::uint64_t step, const SavedState& state,
                        const checkpoint::SaveOptions& options, SourceLocation where) {
    return new PendingSave{checkpoint::begin_save(rank.core, folder, step, state.core, options, where)};
}
checkpoint::Folder commit(PendingSave& pending, SourceLocation where) {
    return std::move(pending.core).commit(where);
}
void end(PendingSave* pending) noexcept { delete pending; }
std::optional<checkpoint::Folder> latest(Context& rank, const std::string& folder, checkpoint::FileCalls* files,
                                         SourceLocation where) {
    return checkpoint::latest(rank.core, folder, files, where);
}
checkpoint::LoadReport load(Context& rank, const std::string& folder, const SavedState& state,
                            const checkpoint::LoadOptions& options, SourceLocation where) {
    return checkpoint::load(rank.core, folder, state.core, options, where);
}
checkpoint::LoadReport load_model(Context& rank, const std::string& path, const Groups& model,
                                  const checkpoint::LoadOptions& options, SourceLocation where) {
    return checkpoint::load_model(rank.core, path, ModelOf<AllPrecisions>(model.core).model(), options, where);
}
void save_model(Context& rank, const std::string& path, const Groups& model, const checkpoint::SaveOptions& options,
                SourceLocation where) {
    checkpoint::save_model(rank.core, path, ModelOf<AllPrecisions>(model.core).model(), options, where);
}
checkpoint::Folder roll_back(Context& rank, const std::string& folder, std::uint64_t step,
                             checkpoint::FileCalls* files, SourceLocation where) {
    return checkpoint::roll_back(rank.core, folder, step, files, where);
}

}  // namespace SHARDKIT_CHECKED_BUILD
