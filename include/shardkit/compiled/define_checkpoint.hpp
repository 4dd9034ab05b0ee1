// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/load.hpp>
#include <shardkit/checkpoint/save.hpp>
#include <shardkit/checkpoint/save_model.hpp>
#include <shardkit/compiled/core_checkpoint.hpp>

// Defines the functions of checkpoint_interface.hpp.

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

SavedState* make_state(const Model& model, SourceLocation where) { return new SavedStateOf(model, where); }
checkpoint::Folder save(Rank& rank, const std::string& folder, std::uint64_t step, const SavedState& state,
                        const checkpoint::SaveOptions& options, SourceLocation where) {
    return checkpoint::save(rank, folder, step, core_of(state), options, where);
}
PendingSave* begin_save(Rank& rank, const std::string& folder, std::uint64_t step, const SavedState& state,
                        const checkpoint::SaveOptions& options, SourceLocation where) {
    struct Pending final : PendingSave {
        explicit Pending(checkpoint::PendingSave begun) : core(std::move(begun)) {}
        checkpoint::Folder commit(SourceLocation at) override { return std::move(core).commit(at); }
        checkpoint::PendingSave core;
    };
    return new Pending(checkpoint::begin_save(rank, folder, step, core_of(state), options, where));
}
std::optional<checkpoint::Folder> latest(Rank& rank, const std::string& folder, checkpoint::FileCalls* files,
                                         SourceLocation where) {
    return checkpoint::latest(rank, folder, files, where);
}
checkpoint::LoadReport load(Rank& rank, const std::string& folder, const SavedState& state,
                            const checkpoint::LoadOptions& options, SourceLocation where) {
    return checkpoint::load(rank, folder, core_of(state), options, where);
}
checkpoint::LoadReport load_model(Rank& rank, const std::string& path, const Model& model,
                                  const checkpoint::LoadOptions& options, SourceLocation where) {
    return checkpoint::load_model(rank, path, model, options, where);
}
void save_model(Rank& rank, const std::string& path, const Model& model, const checkpoint::SaveOptions& options,
                SourceLocation where) {
    checkpoint::save_model(rank, path, model, options, where);
}
checkpoint::Folder roll_back(Rank& rank, const std::string& folder, std::uint64_t step, checkpoint::FileCalls* files,
                             SourceLocation where) {
    return checkpoint::roll_back(rank, folder, step, files, where);
}

}  // namespace SHARDKIT_CHECKED_BUILD
