// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/checkpoint_folder.hpp>
#include <shardkit/checkpoint/checkpoint_plan.hpp>
#include <shardkit/checkpoint/checkpoint_state.hpp>
#include <shardkit/checkpoint/file_calls.hpp>
#include <shardkit/checkpoint/open_file.hpp>
#include <shardkit/checkpoint/options.hpp>
#include <shardkit/checkpoint/read_header.hpp>
#include <shardkit/checkpoint/same_on_all_ranks.hpp>
#include <shardkit/checkpoint/save.hpp>
#include <shardkit/checkpoint/save_mark.hpp>
#include <shardkit/checkpoint/step_folders.hpp>
#include <shardkit/checkpoint/temporary_folder.hpp>
#include <shardkit/checkpoint/write_jobs.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/fnv.hpp>
#include <shardkit/detail/not_copied.hpp>

namespace shardkit::detail {

/// Writes one file of a model, on one rank: first in a folder "FILE.tmp-TOKEN", then renamed to its own name.
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
        TemporaryFolder temporary(calls_);
        temporary.path = concat(path_, temporary_mark, token_text(agree(*plan)));
        const PlannedFile& file = plan->files.front();
        const std::string made = concat(temporary.path, "/", file.name);
        temporary.on_first(world_, where_, [&] {
            require_free();
            remove_stale();
            temporary.make(where_);
            require(calls_.create_file(made), made, "cannot be made", where_);
            OpenFile::to_write(calls_, made, where_).reserve(file.bytes);
        });
        WriteJobs jobs(*plan, state, world_.rank(), world_.size(), false, where_);
        temporary.give_up_on(world_, attempt([&] { jobs.run(calls_, temporary.path, false, where_); }), where_);
        temporary.on_first(world_, where_, [&] {
            read_header(OpenFile::to_read(calls_, made, where_), nullptr, where_);
            take_name(made);
            temporary.end();
            const std::string folder = parent_of(path_);
            require(calls_.sync_folder(folder), folder, "cannot be made durable", where_);
        });
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
    /// Removes what processes left behind that ended during a save of this file. What cannot be removed stays.
    void remove_stale() {
        const std::string folder = parent_of(path_);
        const std::string begin = concat(path_.substr(path_.rfind('/') + 1), temporary_mark);
        std::vector<std::string> names;
        calls_.list(folder, names);
        for (const std::string& name : names) {
            if (!name.starts_with(begin) || !is_token_text(std::string_view(name).substr(begin.size()))) { continue; }
            detail::remove_stale(calls_, concat(folder, "/", name), where_, [] { return std::string("no save's"); });
        }
    }
    void take_name(const std::string& temporary) {
        int error = calls_.rename(temporary, path_);
        if (error == EEXIST && options_.replace) {
            require_free();  // what it is exchanged with goes, and a folder would go with all that it holds
            error = calls_.exchange(temporary, path_);
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

namespace shardkit::checkpoint SHARDKIT_FACE {

SHARDKIT_CORE_INLINE void save_model(Rank& rank, const std::string& path, const Model& model,
                                     const SaveOptions& options, SourceLocation where) {
    const State state(model, where);
    rank.require_same("save_model", state.rank(), "model", where);
    detail::RankWorld world(rank, "save_model");
    detail::ModelFileRun(world, path, options, where).run([&] { return state.capture(where); });
}

}  // namespace SHARDKIT_FACE
