// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <shardkit/checkpoint/checkpoint_folder.hpp>
#include <shardkit/checkpoint/checkpoint_state.hpp>
#include <shardkit/checkpoint/save_options.hpp>
#include <shardkit/checkpoint/save_run.hpp>
#include <shardkit/detail/access.hpp>

namespace shardkit {

/// A save whose files are being written beside the rank's own work. Forward and backward passes go on; the
/// optimizer's step, `load` and `initialize` wait until the rank's part is written, unless it was copied first
/// (Staging::copy). Dropping it on all ranks abandons the save; what a writer had failed with until then is thrown by
/// the next save, on every rank, or said on the error stream when the rank ends. It ends before the groups and the
/// optimizer that it saves: else these end the program.
class PendingSave {
  public:
    PendingSave(PendingSave&&) noexcept = default;
    PendingSave& operator=(PendingSave&&) noexcept = default;

    /// Waits for the writer, and gives the checkpoint its name. Collective over the world.
    /// @throws FileError, the same on every rank, when any file call of any rank failed: nothing of it is left;
    ///         std::invalid_argument when ranks commit different saves; UsageError when it was committed or moved
    ///         from
    CheckpointFolder commit(SourceLocation where = SourceLocation::current()) && {
        const std::unique_ptr<detail::SaveRun> run = std::move(run_);
        if (run == nullptr) { throw_usage_error(where, "PendingSave: commit of what was committed, or moved from"); }
        return run->commit(where);
    }

  private:
    friend detail::Access;
    explicit PendingSave(std::unique_ptr<detail::SaveRun> run) : run_(std::move(run)) {}

    std::unique_ptr<detail::SaveRun> run_;
};

namespace detail {
template <class Engine>
std::unique_ptr<SaveRun> begin_save_run(Context<Engine>& context, std::string&& folder, std::uint64_t step,
                                        const CheckpointState<Engine>& state, SaveOptions&& options, bool beside,
                                        SourceLocation where) {
    context.require_same("save", state.context(), "CheckpointState", where);
    auto world = std::make_unique<RankWorldOf<Engine>>(context, concat("a save in ", folder));
    auto run = std::make_unique<SaveRun>(std::move(world), std::move(folder), step, std::move(options), where);
    run->begin([&] { return Access::capture(state, where); }, beside);
    return run;
}
}  // namespace detail

/// Saves a state as FOLDER/step-NNNNNNNN: whole tensors in safetensors files that know nothing of mesh, policy or
/// world, written by all ranks in parallel, each its own elements at their final place.
///     save(rank, "runs/7", step, CheckpointState{model, optimizer});
/// Order:   collective over the world; after the work given to the compute stream. Returns when committed: the folder
///          has its name, and its bytes are on the disk.
/// Cost:    each byte of the state is written once, and headers are read back; no copy, and no communication besides
///          4 bytes for each tensor and rank, but for tensors whose runs are shorter than a page (tp along the last
///          dimensions, transposed names) or that are parts of a parameter: those go through the group's full buffer.
/// @throws  FileError (path, errno), the same on every rank, when a file call fails anywhere: nothing temporary is
///          left, and older checkpoints are as they were. std::invalid_argument when ranks would write different
///          things, or names and texts make no files that load reads; UsageError within an accumulation
template <class Engine>
CheckpointFolder save(Context<Engine>& context, std::string folder, std::uint64_t step,
                      const CheckpointState<Engine>& state, SaveOptions options = {},
                      SourceLocation where = SourceLocation::current()) {
    const auto run =
        detail::begin_save_run(context, std::move(folder), step, state, std::move(options), false, where);
    run->write();
    return run->commit(where);
}

/// The same, written beside what comes next: see PendingSave. Returns when the files are there, empty; the writer
/// makes room in them, and reads a device's memory.
template <class Engine>
[[nodiscard]] PendingSave begin_save(Context<Engine>& context, std::string folder, std::uint64_t step,
                                     const CheckpointState<Engine>& state, SaveOptions options = {},
                                     SourceLocation where = SourceLocation::current()) {
    auto run = detail::begin_save_run(context, std::move(folder), step, state, std::move(options), true, where);
    run->write_beside();
    return detail::Access::make<PendingSave>(std::move(run));
}

}  // namespace shardkit
