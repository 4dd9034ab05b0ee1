// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/checkpoint_files.hpp>
#include <shardkit/checkpoint/checkpoint_folder.hpp>
#include <shardkit/checkpoint/checkpoint_state.hpp>
#include <shardkit/checkpoint/load_options.hpp>
#include <shardkit/checkpoint/load_run.hpp>
#include <shardkit/checkpoint/together.hpp>

namespace shardkit {

/// The greatest step of a run's folder that was committed: its manifest and the sizes of its files are right. Rank 0
/// looks; every rank gets the same.
/// Order:   collective over the world; the host waits.
/// @returns none where there is no step, or no folder
/// @throws  FileError, the same on every rank, when the folder cannot be read
template <class Engine>
std::optional<CheckpointFolder> latest(Context<Engine>& context, const std::string& folder,
                                       FileCalls* files = nullptr, SourceLocation where = SourceLocation::current()) {
    detail::RankWorldOf<Engine> world(context, "latest");
    std::optional<CheckpointFolder> found;
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
    return CheckpointFolder{detail::concat(folder, "/", detail::step_name(first.step)), first.step,
                            found ? found->skipped : skipped};
}

/// Loads what `save` has written, whatever mesh, policy, engine, precision or number of ranks wrote it.
///     if (const auto found = latest(rank, "runs/7")) { load(rank, found->path, state); }
/// Each rank reads the bytes that it keeps and converts them on the way: the masters where there are any, since a
/// 16-bit parameter is made from them. Full copies are gathered by the next window.
/// Order:   collective over the world; after the work given to the compute stream; the host waits.
/// Cost:    the bytes that the rank keeps; of tensors that are stored in another order, or that tp splits into runs
///          shorter than a page, the pages that have some of them. Digests are compared through 4 bytes for each
///          tensor and rank.
/// @throws  FileError, the same on every rank: a file that is missing, damaged or of another shape, or tensors that
///          the state lacks or has besides, by name; UsageError while a window is open or a save is pending. After a
///          digest that differs the state is that of damaged files: load another one, or end
template <class Engine>
LoadReport load(Context<Engine>& context, const std::string& folder, const CheckpointState<Engine>& state,
                LoadOptions options = {}, SourceLocation where = SourceLocation::current()) {
    context.require_same("load", state.context(), "CheckpointState", where);
    detail::RankWorldOf<Engine> world(context, "load");
    detail::LoadRun run(world, std::move(options), where);
    return run.run([&](FileCalls& calls) { return detail::CheckpointFiles::of_checkpoint(calls, folder, where); },
                   state);
}

/// Loads a model's parameters from what anyone wrote: a safetensors file, an index of several, or a folder with
/// either (docs/checkpoints.md says which). As load otherwise; there are no digests.
/// @throws  FileError as load does, also for a folder with a model in several forms, and a file of something else
template <class Engine, class Precision>
LoadReport load_model(Context<Engine>& context, const std::string& path, const Model<Engine, Precision>& model,
                      LoadOptions options = {}, SourceLocation where = SourceLocation::current()) {
    const CheckpointState<Engine> state(model, where);
    context.require_same("load_model", state.context(), "model", where);
    detail::RankWorldOf<Engine> world(context, "load");
    detail::LoadRun run(world, std::move(options), where);
    return run.run([&](FileCalls& calls) { return detail::CheckpointFiles::of_model(calls, path, where); }, state);
}

}  // namespace shardkit
