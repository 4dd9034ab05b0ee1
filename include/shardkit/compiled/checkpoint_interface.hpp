// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <shardkit/checkpoint/folder.hpp>
#include <shardkit/checkpoint/load_options.hpp>
#include <shardkit/checkpoint/save_options.hpp>
#include <shardkit/compiled/interface.hpp>

// What a trainer's file calls to save and load in the compiled form; compiled_checkpoint.hpp defines it.

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

class SavedState;   // a checkpoint::State
class PendingSave;  // a save in the background

SavedState* make_state(const Groups& model, SourceLocation where);
void end(SavedState* state) noexcept;
void add(SavedState& state, Optimizer& optimizer, SourceLocation where);
void add(SavedState& state, LossScale& loss_scale, std::string name, SourceLocation where);
void add(SavedState& state, std::string name, std::vector<std::uint8_t>& blob, SourceLocation where);

checkpoint::Folder save(Context& rank, const std::string& folder, std::uint64_t step, const SavedState& state,
                        const checkpoint::SaveOptions& options, SourceLocation where);
PendingSave* begin_save(Context& rank, const std::string& folder, std::uint64_t step, const SavedState& state,
                        const checkpoint::SaveOptions& options, SourceLocation where);
checkpoint::Folder commit(PendingSave& pending, SourceLocation where);
void end(PendingSave* pending) noexcept;
std::optional<checkpoint::Folder> latest(Context& rank, const std::string& folder, checkpoint::FileCalls* files,
                                         SourceLocation where);
checkpoint::LoadReport load(Context& rank, const std::string& folder, const SavedState& state,
                            const checkpoint::LoadOptions& options, SourceLocation where);
checkpoint::LoadReport load_model(Context& rank, const std::string& path, const Groups& model,
                                  const checkpoint::LoadOptions& options, SourceLocation where);
void save_model(Context& rank, const std::string& path, const Groups& model, const checkpoint::SaveOptions& options,
                SourceLocation where);
checkpoint::Folder roll_back(Context& rank, const std::string& folder, std::uint64_t step,
                             checkpoint::FileCalls* files, SourceLocation where);

}  // namespace SHARDKIT_CHECKED_BUILD
