// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <shardkit/checkpoint/options.hpp>
#include <shardkit/compiled/interface.hpp>

// What a trainer's file calls to save and load in the compiled form; compiled_checkpoint.hpp defines it.

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

/// A checkpoint::State.
class SavedState : public Object {
  public:
    virtual SavedState* copy() const = 0;
    /// How many reshards and loads have given all parameters their values.
    virtual std::uint64_t version(SourceLocation where) const = 0;
    virtual void add(Optimizer& optimizer, SourceLocation where) = 0;
    virtual void add(LossScale& loss_scale, std::string name, SourceLocation where) = 0;
    virtual void add(std::string name, std::vector<std::uint8_t>& blob, SourceLocation where) = 0;
};

/// A save in the background.
class PendingSave {
  public:
    virtual ~PendingSave() = default;
    PendingSave(PendingSave&&) = delete;
    virtual checkpoint::Folder commit(SourceLocation where) = 0;

  protected:
    PendingSave() = default;
};

// Saves and loads.
SavedState* make_state(const Model& model, SourceLocation where);
checkpoint::Folder save(Rank& rank, const std::string& folder, std::uint64_t step, const SavedState& state,
                        const checkpoint::SaveOptions& options, SourceLocation where);
PendingSave* begin_save(Rank& rank, const std::string& folder, std::uint64_t step, const SavedState& state,
                        const checkpoint::SaveOptions& options, SourceLocation where);
std::optional<checkpoint::Folder> latest(Rank& rank, const std::string& folder, checkpoint::FileCalls* files,
                                         SourceLocation where);
checkpoint::LoadReport load(Rank& rank, const std::string& folder, const SavedState& state,
                            const checkpoint::LoadOptions& options, SourceLocation where);
checkpoint::LoadReport load_model(Rank& rank, const std::string& path, const Model& model,
                                  const checkpoint::LoadOptions& options, SourceLocation where);
void save_model(Rank& rank, const std::string& path, const Model& model, const checkpoint::SaveOptions& options,
                SourceLocation where);
checkpoint::Folder roll_back(Rank& rank, const std::string& folder, std::uint64_t step, checkpoint::FileCalls* files,
                             SourceLocation where);

}  // namespace SHARDKIT_CHECKED_BUILD
