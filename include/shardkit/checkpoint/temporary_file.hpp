// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/checkpoint_folder.hpp>
#include <shardkit/checkpoint/file_calls.hpp>
#include <shardkit/checkpoint/open_file.hpp>
#include <shardkit/checkpoint/save_mark.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/not_copied.hpp>

namespace shardkit::detail {

/// A file that is written under a temporary name: "FILE.tmp-TOKEN", with a mark "FILE.tmp-TOKEN.uncommitted".
class TemporaryFile : NotCopied {
  public:
    /// @param path  final path of the file
    TemporaryFile(checkpoint::FileCalls& calls, const std::string& path, std::uint64_t token) : calls_(calls) {
        const std::size_t slash = path.rfind('/');
        folder_ = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
        begin_ = concat(path.substr(slash + 1), temporary_mark);
        name_ = concat(begin_, token_text(token));
    }
    ~TemporaryFile() { unlock(); }

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
            std::optional<int> held;
            if (take_mark(calls_, concat(in_folder(name), mark_ending), held, where)) { continue; }
            remove(in_folder(name));
            if (held) { calls_.unlock(*held); }
        }
    }
    /// Makes the mark and the file. Another job that removes abandoned files may find the mark before it is locked,
    /// and remove it: then it is made again.
    void make(SourceLocation where) {
        const std::string mark = concat(path(), mark_ending);
        for (std::size_t tries = 1;; ++tries) {
            made_ = true;
            const int error = set_mark(calls_, mark, lock_, where);
            if (error == 0) { break; }
            unlock();
            if ((error != ENOENT && error != EWOULDBLOCK) || tries == 1000) {
                require(error, mark, "cannot be made, or locked", where);
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        require(calls_.create_file(path()), path(), "cannot be made", where);
    }
    /// Removes the temporary file and its mark, before or after the file was renamed.
    void end() noexcept {
        try {
            if (std::exchange(made_, false)) { remove(path()); }
        } catch (...) {}  // NOLINT(bugprone-empty-catch): of no memory; the next save removes it
        unlock();
    }

  private:
    static constexpr std::string_view mark_ending = ".uncommitted";

    std::string in_folder(const std::string& name) const { return concat(folder_, "/", name); }
    /// The mark is removed last, so that the rest is recognized after a kill.
    void remove(const std::string& path) {
        const int error = calls_.remove_file(path);
        if (error == 0 || error == ENOENT) { calls_.remove_file(concat(path, mark_ending)); }
    }
    void unlock() noexcept {
        if (lock_) { calls_.unlock(*std::exchange(lock_, std::nullopt)); }
    }

    checkpoint::FileCalls& calls_;
    std::string folder_;
    std::string begin_;
    std::string name_;
    bool made_ = false;
    std::optional<int> lock_;
};

}  // namespace shardkit::detail
