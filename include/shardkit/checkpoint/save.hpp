// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <shardkit/checkpoint/checkpoint_state.hpp>
#include <shardkit/checkpoint/options.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/step/model.hpp>

namespace shardkit::detail {
class SaveRun;
}

namespace shardkit::checkpoint SHARDKIT_FACE {

/// A save whose files are written in the background. Forward and backward passes can go on. The optimizer's step,
/// `load` and `initialize` wait until the rank's part is written, unless it was copied first (Staging::copy).
/// Destroying it on all ranks abandons the save. If its background writer has failed, the next save throws the error
/// on every rank, or the end of the rank prints it on stderr. It must end before the groups and the optimizer that it
/// saves: otherwise these end the program.
class PendingSave {
  public:
    /// Takes a save that was begun.
    explicit PendingSave(std::unique_ptr<detail::SaveRun> run) noexcept;
    PendingSave(PendingSave&& other) noexcept;
    PendingSave& operator=(PendingSave&& other) noexcept;
    ~PendingSave();

    /// Waits for the writer, and gives the checkpoint its final name. Collective over the world.
    /// @throws FileError, the same on every rank, when any file call of any rank failed: nothing of the save is left;
    ///         std::invalid_argument when ranks commit different saves; UsageError when it was committed or moved
    ///         from
    Folder commit(SourceLocation where = SourceLocation::current()) &&;

  private:
    std::unique_ptr<detail::SaveRun> run_;
};

/// Saves a state as FOLDER/step-NNNNNNNN. Its safetensors files hold whole tensors and do not depend on mesh, policy
/// or world. All ranks write in parallel, each its own elements at their final place.
///     save(rank, "runs/7", step, State{model, optimizer});
/// Order:   collective over the world; after the work given to the compute stream. Returns when committed: the folder
///          has its final name, and its bytes are durable.
/// Cost:    each byte of the state is written once, and headers are read back. Nothing is copied, and 4 bytes for
///          each tensor and rank are communicated. Exceptions are tensors whose runs are shorter than a page (tp
///          along the last dimensions, transposed names) and tensors that are parts of a parameter: they use the
///          group's full buffer.
/// @throws  FileError (path, errno), the same on every rank, when a file call fails anywhere: nothing temporary is
///          left, and older checkpoints are unchanged. std::invalid_argument when ranks would write different
///          contents, or names and texts make files that load cannot read; UsageError within an accumulation
Folder save(Rank& rank, const std::string& folder, std::uint64_t step, const State& state,
            const SaveOptions& options = {}, SourceLocation where = SourceLocation::current());

/// Begins a save whose files are written in the background; see PendingSave. Returns when the files exist, still
/// empty. The background writer reserves their space, and copies from device memory.
[[nodiscard]] PendingSave begin_save(Rank& rank, const std::string& folder, std::uint64_t step, const State& state,
                                     const SaveOptions& options = {},
                                     SourceLocation where = SourceLocation::current());

/// Saves a model's parameters as one safetensors file for other programs: without a step's folder, manifest and
/// optimizer. All ranks write to a file in a temporary folder beside it, which is then renamed. Of the options,
/// `names`, `replace` and `files` are used.
///     save_model(rank, "export/model.safetensors", model, {.names = names, .replace = true});
/// Order:   collective over the world; after the work given to the compute stream. Returns when the bytes are
/// durable.
/// @throws  FileError (path, errno), the same on every rank, when a file call fails anywhere: a file at `path` is
///          unchanged, and nothing else is left; std::invalid_argument and UsageError as `save`
void save_model(Rank& rank, const std::string& path, const Model& model, const SaveOptions& options = {},
                SourceLocation where = SourceLocation::current());

}  // namespace SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
#include <shardkit/checkpoint/save_model.hpp>
#include <shardkit/checkpoint/save_run.hpp>
#endif
