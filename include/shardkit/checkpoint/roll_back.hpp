// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/checkpoint_folder.hpp>
#include <shardkit/checkpoint/file_calls.hpp>
#include <shardkit/checkpoint/same_on_all_ranks.hpp>
#include <shardkit/checkpoint/step_folders.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/fnv.hpp>
#include <shardkit/rank/context.hpp>

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
template <class Engine>
Folder roll_back(Context<Engine>& context, const std::string& folder, std::uint64_t step, FileCalls* files = nullptr,
                 SourceLocation where = SourceLocation::current()) {
    detail::RankWorldOf<Engine> world(context, "roll_back");
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

}  // namespace shardkit::checkpoint
