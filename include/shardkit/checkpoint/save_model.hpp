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
#include <shardkit/checkpoint/write_jobs.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/fnv.hpp>
#include <shardkit/detail/not_copied.hpp>

namespace shardkit::detail {

/// A file that is written under a temporary name: "FILE.tmp-TOKEN", with a mark "FILE.tmp-TOKEN.uncommitted".
class TemporaryFile : NotCopied {
  public:
    /// @param path  final path of the file
    TemporaryFile(checkpoint::FileCalls& calls, const std::string& path, std::uint64_t token)
        : calls_(calls), mark_(calls) {
        const std::size_t slash = path.rfind('/');
        folder_ = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
        begin_ = concat(path.substr(slash + 1), temporary_mark);
        name_ = concat(begin_, token_text(token));
    }

    const std::string& folder() const noexcept { return folder_; }
    const std::string& name() const noexcept { return name_; }  ///< in the folder
    std::string path() const { return in_folder(name_); }

    /// Removes what processes left behind that ended during a save of this file. What cannot be removed stays.
    void remove_stale(SourceLocation where) {
        std::vector<std::string> names;
        if (calls_.list(folder_, names) != 0) { return; }
        for (std::string& name : names) {
            if (!name.starts_with(begin_) || !name.ends_with(mark_ending)) { continue; }
            name.resize(name.size() - mark_ending.size());
            if (!is_token_text(std::string_view(name).substr(begin_.size()))) { continue; }
            SaveMark mark(calls_);
            if (!mark.take(concat(in_folder(name), mark_ending), where)) { remove(in_folder(name)); }
        }
    }
    /// Makes the mark and the file.
    void make(SourceLocation where) {
        const std::string mark = concat(path(), mark_ending);
        made_ = true;
        require(mark_.set_by([&] { return mark_.set(mark, where); }), mark, "cannot be made, or locked", where);
        require(calls_.create_file(path()), path(), "cannot be made", where);
    }
    /// Removes the temporary file and its mark, before or after the file was renamed.
    void end() noexcept {
        try {
            if (std::exchange(made_, false)) { remove(path()); }
        } catch (...) {}  // NOLINT(bugprone-empty-catch): of no memory; the next save removes it
        mark_.unlock();
    }

  private:
    static constexpr std::string_view mark_ending = ".uncommitted";

    std::string in_folder(const std::string& name) const { return concat(folder_, "/", name); }
    /// The mark is removed last, so that the rest is recognized after a kill.
    void remove(const std::string& path) {
        const int error = calls_.remove_file(path);
        if (error == 0 || error == ENOENT) { calls_.remove_file(concat(path, mark_ending)); }
    }

    checkpoint::FileCalls& calls_;
    std::string folder_;
    std::string begin_;
    std::string name_;
    bool made_ = false;
    SaveMark mark_;
};

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

namespace shardkit::checkpoint SHARDKIT_FACE {

SHARDKIT_CORE_INLINE void save_model(Rank& rank, const std::string& path, const Model& model,
                                     const SaveOptions& options, SourceLocation where) {
    const State state(model, where);
    rank.require_same("save_model", state.rank(), "model", where);
    detail::RankWorld world(rank, "save_model");
    detail::ModelFileRun(world, path, options, where).run([&] { return state.capture(where); });
}

}  // namespace SHARDKIT_FACE
