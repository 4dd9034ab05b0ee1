// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/checkpoint_files.hpp>
#include <shardkit/checkpoint/checkpoint_folder.hpp>
#include <shardkit/checkpoint/checkpoint_state.hpp>
#include <shardkit/checkpoint/file_calls.hpp>
#include <shardkit/checkpoint/load_run.hpp>
#include <shardkit/checkpoint/options.hpp>
#include <shardkit/checkpoint/same_on_all_ranks.hpp>
#include <shardkit/checkpoint/step_folders.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/fnv.hpp>
#include <shardkit/rank/rank.hpp>

namespace shardkit::checkpoint {

/// Removes all steps of a run's folder above `step`, for a run that goes back to it. `latest` then finds `step`, and
/// the next saves are the newest.
///     const Folder from = roll_back(rank, "runs/7", 100);
///     load(rank, from.path, state);
/// Rank 0 removes, from the latest step down, after it has checked that `step` is complete. Entries that no save has
/// made stay, and are listed in `skipped`.
/// Order:   collective over the world; the host waits. No other job may save into the folder meanwhile.
/// @throws  FileError, the same on every rank: `step` is missing or incomplete, a later step is a link (then nothing
///          was removed), or a step cannot be removed (then those above it were); std::invalid_argument when ranks
///          give different folders or steps
inline Folder roll_back(Rank& rank, const std::string& folder, std::uint64_t step, FileCalls* files = nullptr,
                        SourceLocation where = SourceLocation::current()) {
    detail::RankWorldOf world(rank, "roll_back");
    Folder made{detail::concat(folder, "/", detail::step_name(step)), step, {}};
    detail::Fnv identity;
    identity.add(made.path);
    detail::require_same(world, "roll_back", made.path, identity.hash, where);
    detail::together(world, where, [&] {
        if (world.rank() != 0) { return; }
        FileCalls& calls = files != nullptr ? *files : detail::posix_files();
        detail::StepFolders(calls, folder, made.skipped).roll_back(step, detail::new_token(), where);
    });
    return made;
}

/// Returns the latest committed step of a run's folder, whose manifest and file sizes are right. Rank 0 looks for it,
/// and every rank gets the same.
/// Order:   collective over the world; the host waits.
/// @returns none if there is no step or no folder
/// @throws  FileError, the same on every rank, when the folder cannot be read
inline std::optional<Folder> latest(Rank& rank, const std::string& folder, FileCalls* files = nullptr,
                                    SourceLocation where = SourceLocation::current()) {
    detail::RankWorldOf world(rank, "latest");
    std::optional<Folder> found;
    std::vector<std::string> skipped;
    detail::together(world, where, [&] {
        if (world.rank() != 0) { return; }
        found = detail::latest_of(files != nullptr ? *files : detail::posix_files(), folder, skipped, where);
    });
    struct Found {
        std::uint64_t there;
        std::uint64_t step;
    };
    const Found own{found ? 1U : 0U, found ? found->step : 0};
    const Found first = world.gather(own, where).front();
    if (first.there == 0) { return std::nullopt; }
    return Folder{detail::concat(folder, "/", detail::step_name(first.step)), first.step,
                  found ? found->skipped : skipped};
}

/// Loads what `save` has written, on any mesh, policy, engine, precision and number of ranks.
///     if (const auto found = latest(rank, "runs/7")) { load(rank, found->path, state); }
/// Each rank reads the bytes that it keeps, and converts them. A 16-bit parameter with master weights is made from
/// these. The next window gathers the full copies.
/// Order:   collective over the world; after the work given to the compute stream; the host waits.
/// Cost:    reads the bytes that the rank keeps; of tensors that are stored in another order, or that tp splits into
///          runs shorter than a page, the pages that contain some of them. Digests are compared with 4 bytes for each
///          tensor and rank.
/// @throws  FileError, the same on every rank, for a file that is missing, damaged or of another shape, or tensors
///          that only the state or only the files have, by name; UsageError while a window is open or a save is
///          pending. After a wrong digest the state has values of damaged files: load another checkpoint, or end
inline LoadReport load(Rank& rank, const std::string& folder, const State& state, LoadOptions options = {},
                       SourceLocation where = SourceLocation::current()) {
    rank.require_same("load", state.rank(), "checkpoint::State", where);
    detail::RankWorldOf world(rank, "load");
    detail::LoadRun run(world, std::move(options), where);
    return run.run([&](FileCalls& calls) { return detail::CheckpointFiles::of_checkpoint(calls, folder, where); },
                   state);
}

/// Loads a model's parameters from files of any origin: a safetensors file, an index of several, or a folder with
/// either (docs/checkpoints.md lists them). Otherwise the same as load, but without digests.
/// @throws  FileError as load, also for a folder with a model in several forms, and for files of another format
inline LoadReport load_model(Rank& rank, const std::string& path, const Model& model, LoadOptions options = {},
                             SourceLocation where = SourceLocation::current()) {
    const State state(model, where);
    rank.require_same("load_model", state.rank(), "model", where);
    detail::RankWorldOf world(rank, "load");
    detail::LoadRun run(world, std::move(options), where);
    return run.run([&](FileCalls& calls) { return detail::CheckpointFiles::of_model(calls, path, where); }, state);
}

}  // namespace shardkit::checkpoint
