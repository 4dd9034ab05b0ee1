// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <shardkit/checkpoint/checkpoint_state.hpp>
#include <shardkit/checkpoint/file_calls.hpp>
#include <shardkit/checkpoint/options.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/step/model.hpp>

namespace shardkit::checkpoint SHARDKIT_FACE {

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
Folder roll_back(Rank& rank, const std::string& folder, std::uint64_t step, FileCalls* files = nullptr,
                 SourceLocation where = SourceLocation::current());

/// Returns the latest committed step of a run's folder, whose manifest and file sizes are right. Rank 0 looks for it,
/// and every rank gets the same.
/// Order:   collective over the world; the host waits.
/// @returns none if there is no step or no folder
/// @throws  FileError, the same on every rank, when the folder cannot be read
std::optional<Folder> latest(Rank& rank, const std::string& folder, FileCalls* files = nullptr,
                             SourceLocation where = SourceLocation::current());

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
LoadReport load(Rank& rank, const std::string& folder, const State& state, const LoadOptions& options = {},
                SourceLocation where = SourceLocation::current());

/// Loads a model's parameters from files of any origin: a safetensors file, an index of several, or a folder with
/// either (docs/checkpoints.md lists them). Otherwise the same as load, but without digests.
/// @throws  FileError as load, also for a folder with a model in several forms, and for files of another format
LoadReport load_model(Rank& rank, const std::string& path, const Model& model, const LoadOptions& options = {},
                      SourceLocation where = SourceLocation::current());

}  // namespace SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
#include <shardkit/checkpoint/load_run.hpp>
#endif
