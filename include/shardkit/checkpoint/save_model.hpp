// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/checkpoint_plan.hpp>
#include <shardkit/checkpoint/checkpoint_state.hpp>
#include <shardkit/checkpoint/file_calls.hpp>
#include <shardkit/checkpoint/open_file.hpp>
#include <shardkit/checkpoint/options.hpp>
#include <shardkit/checkpoint/read_header.hpp>
#include <shardkit/checkpoint/same_on_all_ranks.hpp>
#include <shardkit/checkpoint/save_mark.hpp>
#include <shardkit/checkpoint/temporary_file.hpp>
#include <shardkit/checkpoint/write_jobs.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/access.hpp>
#include <shardkit/detail/fnv.hpp>

namespace shardkit::detail {

/// Writes one file of a model, on one rank: first under a temporary name, then renamed to its own.
class ModelFileRun {
  public:
    ModelFileRun(RankWorld& world, std::string path, checkpoint::SaveOptions options, SourceLocation where)
        : world_(world),
          options_(std::move(options)),
          calls_(options_.files != nullptr ? *options_.files : posix_files()),
          path_(std::move(path)),
          where_(where) {}

    /// Writes the file. `capture()` returns the state. Collective over the world.
    template <class Capture>
    void run(const Capture& capture) {
        SavedState state;
        std::optional<CheckpointPlan> plan;
        together(world_, where_, [&] {
            state = capture();
            for (const auto& group : state.groups) {
                group->require_idle("save_model", where_);
                group->values.erase_if([](const auto& values) { return values->kind.role != Role::parameters; });
            }
            plan.emplace(state, options_.names, std::numeric_limits<std::uint64_t>::max(), where_);
            if (plan->files.size() != 1) { throw_invalid_argument(where_, "save_model: a model without parameters"); }
        });
        require_same_updates(world_, "save_model", state.groups, where_);
        PlannedFile& file = plan->files.front();
        const std::uint64_t token = agree(*plan);
        TemporaryFile temporary(calls_, path_, token);
        file.name = temporary.name();
        const auto go = [&](const Failure& own) {
            const Failure first = Failure::first(world_, own, where_);
            if (!first.happened()) { return; }
            temporary.end();
            world_.gather('\0', where_);
            first.raise(where_);
        };
        go(attempt([&] {
            if (world_.rank() != 0) { return; }
            require_free();
            temporary.remove_stale(where_);
            temporary.make(where_);
            OpenFile::to_write(calls_, temporary.path(), where_).reserve(file.bytes);
        }));
        WriteJobs jobs(*plan, state, world_.rank(), world_.size(), false, where_);
        go(attempt([&] { jobs.run(calls_, temporary.folder(), false, where_); }));
        go(attempt([&] {
            if (world_.rank() != 0) { return; }
            read_header(OpenFile::to_read(calls_, temporary.path(), where_), nullptr, where_);
            take_name(temporary.path());
            temporary.end();
            require(calls_.sync_folder(temporary.folder()), temporary.folder(), "cannot be made durable", where_);
        }));
    }

  private:
    /// Checks that all ranks write the same file. Returns the token of its temporary name.
    std::uint64_t agree(const CheckpointPlan& plan) {
        Fnv identity;
        identity.add(path_);
        identity.add(plan.hash());
        identity.add(options_.replace ? 1 : 0);
        require_same(world_, "save_model", path_, identity.hash, where_);
        return world_.gather(new_token(), where_).front();
    }
    void require_free() {
        std::vector<std::string> names;
        bool link = false;
        if (calls_.list(path_, names) == 0) { throw FileError(path_, "is a folder, expected a file's path", where_); }
        if (!options_.replace && calls_.is_link(path_, link) == 0 && has_file(calls_, path_)) {
            throw FileError(path_, "exists, and checkpoint::SaveOptions::replace was not given", where_);
        }
    }
    void take_name(const std::string& temporary) {
        int error = calls_.rename(temporary, path_);
        if (error == EEXIST && options_.replace) {
            error = calls_.exchange(temporary, path_);
            if (error == 0) { error = calls_.remove_file(temporary); }
            if (error == EINVAL || error == ENOSYS || error == ENOTSUP || error == EOPNOTSUPP) {
                error = calls_.remove_file(path_);
                if (error == 0) { error = calls_.rename(temporary, path_); }
            }
        }
        require(error, path_, "cannot take its name", where_);
    }

    RankWorld& world_;
    checkpoint::SaveOptions options_;
    checkpoint::FileCalls& calls_;
    std::string path_;
    SourceLocation where_;
};

}  // namespace shardkit::detail

namespace shardkit::checkpoint {

/// Saves a model's parameters as one safetensors file for other programs: without a step's folder, manifest and
/// optimizer. All ranks write to a temporary file, which is then renamed. Of the options, `names`, `replace` and
/// `files` are used.
///     save_model(rank, "export/model.safetensors", model, {.names = names, .replace = true});
/// Order:   collective over the world; after the work given to the compute stream. Returns when the bytes are
/// durable.
/// @throws  FileError (path, errno), the same on every rank, when a file call fails anywhere: a file at `path` is
///          unchanged, and nothing else is left; std::invalid_argument and UsageError as `save`
template <class Engine, class Precision>
void save_model(Context<Engine>& context, std::string path, const Model<Engine, Precision>& model,
                SaveOptions options = {}, SourceLocation where = SourceLocation::current()) {
    const State<Engine> state(model, where);
    context.require_same("save_model", state.context(), "model", where);
    detail::RankWorldOf<Engine> world(context, "save_model");
    detail::ModelFileRun(world, std::move(path), std::move(options), where).run([&] {
        return detail::Access::capture(state, where);
    });
}

}  // namespace shardkit::checkpoint
