// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <shardkit/checkpoint/checkpoint_folder.hpp>
#include <shardkit/checkpoint/checkpoint_state.hpp>
#include <shardkit/checkpoint/options.hpp>
#include <shardkit/checkpoint/save_run.hpp>
#include <shardkit/detail/access.hpp>

namespace shardkit::checkpoint {

/// A save whose files are written in the background. Forward and backward passes can go on. The optimizer's step,
/// `load` and `initialize` wait until the rank's part is written, unless it was copied first (Staging::copy).
/// Destroying it on all ranks abandons the save. If its background writer has failed, the next save throws the error
/// on every rank, or the end of the rank prints it on stderr. It must end before the groups and the optimizer that it
/// saves: otherwise these end the program.
class PendingSave {
  public:
    PendingSave(PendingSave&&) noexcept = default;
    PendingSave& operator=(PendingSave&&) noexcept = default;

    /// Waits for the writer, and gives the checkpoint its final name. Collective over the world.
    /// @throws FileError, the same on every rank, when any file call of any rank failed: nothing of the save is left;
    ///         std::invalid_argument when ranks commit different saves; UsageError when it was committed or moved
    ///         from
    Folder commit(SourceLocation where = SourceLocation::current()) && {
        const std::unique_ptr<detail::SaveRun> run = std::move(run_);
        if (run == nullptr) { throw_usage_error(where, "PendingSave: commit of what was committed, or moved from"); }
        return run->commit(where);
    }

  private:
    friend detail::Access;
    explicit PendingSave(std::unique_ptr<detail::SaveRun> run) : run_(std::move(run)) {}

    std::unique_ptr<detail::SaveRun> run_;
};

}  // namespace shardkit::checkpoint

namespace shardkit::detail {
inline std::unique_ptr<SaveRun> begin_save_run(Rank& rank, std::string&& folder, std::uint64_t step,
                                               const checkpoint::State& state, checkpoint::SaveOptions&& options,
                                               bool beside, SourceLocation where) {
    rank.require_same("save", state.rank(), "checkpoint::State", where);
    auto world = std::make_unique<RankWorldOf>(rank, concat("a save in ", folder));
    auto run = std::make_unique<SaveRun>(std::move(world), std::move(folder), step, std::move(options), where);
    run->begin([&] { return Access::capture(state, where); }, beside);
    return run;
}
}  // namespace shardkit::detail

namespace shardkit::checkpoint {

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
inline Folder save(Rank& rank, std::string folder, std::uint64_t step, const State& state, SaveOptions options = {},
                   SourceLocation where = SourceLocation::current()) {
    const auto run = detail::begin_save_run(rank, std::move(folder), step, state, std::move(options), false, where);
    run->write();
    return run->commit(where);
}

/// Begins a save whose files are written in the background; see PendingSave. Returns when the files exist, still
/// empty. The background writer reserves their space, and copies from device memory.
[[nodiscard]] inline PendingSave begin_save(Rank& rank, std::string folder, std::uint64_t step, const State& state,
                                            SaveOptions options = {},
                                            SourceLocation where = SourceLocation::current()) {
    auto run = detail::begin_save_run(rank, std::move(folder), step, state, std::move(options), true, where);
    run->write_beside();
    return detail::Access::make<PendingSave>(std::move(run));
}

}  // namespace shardkit::checkpoint
