// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <string>
#include <utility>

#include <shardkit/checkpoint/file_calls.hpp>
#include <shardkit/checkpoint/open_file.hpp>
#include <shardkit/checkpoint/same_on_all_ranks.hpp>
#include <shardkit/checkpoint/save_mark.hpp>
#include <shardkit/checkpoint/step_folders.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/not_copied.hpp>

namespace shardkit::detail {

/// The folder in which rank 0 makes the files of a save until they get their name, with a mark. Nothing of it stays
/// when this object ends.
class TemporaryFolder : NotCopied {
  public:
    explicit TemporaryFolder(checkpoint::FileCalls& calls) noexcept : calls_(calls), mark_(calls) {}
    ~TemporaryFolder() { end(); }

    std::string path;  ///< the same on every rank

    void make(SourceLocation where) {
        const int error = mark_.set_by([&] {
            const int folder = calls_.make_folder(path);
            require(folder == EEXIST && made_ ? 0 : folder, path, "cannot be made", where);
            made_ = true;
            return mark_.set(concat(path, "/", mark_name), where);
        });
        require(error, path, "cannot be locked, or has no room for a mark", where);
    }
    /// Notes that it has another name now, under which it stays.
    void was_renamed() noexcept { made_ = false; }
    /// Removes what is left of it.
    void end() noexcept {
        try {
            if (std::exchange(made_, false)) { remove_all(calls_, path); }
        } catch (...) {}  // NOLINT(bugprone-empty-catch): of no memory; the next save removes it
        mark_.unlock();
    }
    /// Removes it and throws the first rank's error, if there is one. Collective over the world.
    void give_up_on(RankWorld& world, const Failure& own, SourceLocation where) {
        const Failure first = world.first(own, where);
        if (!first.happened()) { return; }
        end();
        world.gather('\0', where);
        first.raise(where);
    }
    /// Runs `work` on rank 0. If it fails, nothing is left when the ranks throw. Collective over the world.
    template <class F>
    void on_first(RankWorld& world, SourceLocation where, const F& work) {
        give_up_on(world, attempt([&] {
                       if (world.rank() == 0) { work(); }
                   }),
                   where);
    }

  private:
    checkpoint::FileCalls& calls_;
    bool made_ = false;
    SaveMark mark_;
};

}  // namespace shardkit::detail
