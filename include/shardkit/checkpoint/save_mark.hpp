// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <shardkit/checkpoint/file_calls.hpp>
#include <shardkit/checkpoint/open_file.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/not_copied.hpp>

namespace shardkit::detail {

/// Identifies a saving process by a text beside its files. Where the file system has no locks, another process finds
/// out from it whether the process still runs.
class SavingProcess {
  public:
    /// Returns the text of this process: "BOOT NAMESPACE NUMBER BEGIN\n".
    static std::string text() {
        return concat(place(), " ", ::getpid(), " ", of_process(concat(::getpid())).begin, "\n");
    }
    /// Returns whether the process of such a text has certainly ended. For another machine, or another container on
    /// this one, the answer is false, as it is not known.
    static bool has_ended(std::string_view text) {
        const std::string here = concat(place(), " ");
        const Process own = of_process(concat(::getpid()));
        if (own.begin.empty() || !text.starts_with(here) || !text.ends_with('\n')) { return false; }
        text.remove_prefix(here.size());
        text.remove_suffix(1);
        const std::size_t space = text.find(' ');
        if (space == 0 || space > 9 || text.find_first_not_of("0123456789 ") != std::string_view::npos) {
            return false;
        }
        const std::string number(text.substr(0, space));
        if (::kill(static_cast<pid_t>(std::stol(number)), 0) != 0 && errno == ESRCH) { return true; }
        // Another process may have the number by now; a process outside of ours may be hidden.
        const Process process = of_process(number);
        return !process.begin.empty() && (process.ended || process.begin != text.substr(space + 1));
    }

  private:
    struct Process {
        std::string begin;  // start time in clock ticks; empty where it cannot be read
        bool ended = false;
    };

    static std::string read(const std::string& path) {
        std::ifstream file(path);
        return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    }
    /// Returns this boot of the machine, and the namespace of its process numbers.
    static std::string place() {
        std::string boot = read("/proc/sys/kernel/random/boot_id");
        boot.erase(boot.find_last_not_of('\n') + 1);
        char space[64] = "";
        const auto length = ::readlink("/proc/self/ns/pid", space, sizeof space);
        return concat(boot, " ", std::string_view(space, length > 0 ? static_cast<std::size_t>(length) : 0));
    }
    /// Reads proc(5): "7 (name) S 1 ...", whose 22nd field is the start time.
    static Process of_process(const std::string& number) {
        const std::string stat = read(concat("/proc/", number, "/stat"));
        std::size_t at = stat.rfind(')');
        if (at == std::string::npos) { return {}; }
        Process process;
        process.ended = stat.substr(at, 4) == ") Z " || stat.substr(at, 4) == ") X ";
        for (int field = 2; field < 22 && at != std::string::npos; ++field) { at = stat.find(' ', at + 1); }
        if (at == std::string::npos) { return {}; }
        process.begin = stat.substr(at + 1, stat.find(' ', at + 1) - at - 1);
        return process;
    }
};

/// Returns whether the error means that files cannot be locked there at all.
inline bool has_no_locks(int error) noexcept {
    return error == ENOSYS || error == ENOTSUP || error == EOPNOTSUPP || error == ENOLCK || error == EINVAL;
}
/// Returns whether the file exists.
inline bool has_file(checkpoint::FileCalls& calls, const std::string& path) {
    int file = -1;
    std::uint64_t bytes = 0;
    const int error = calls.open_to_read(path, file, bytes);
    if (error == 0) { calls.close(file); }
    return error != ENOENT;
}
/// A mark is a file beside an unfinished save, with the text of SavingProcess. The saving process locks it where
/// locks are supported, until this object ends.
class SaveMark : NotCopied {
  public:
    explicit SaveMark(checkpoint::FileCalls& calls) noexcept : calls_(calls) {}
    ~SaveMark() { unlock(); }

    /// Makes a mark and locks it. @returns 0, or the errno of the failure: EWOULDBLOCK or ENOENT if another job took
    /// it for an abandoned one and may remove it
    /// @throws FileError when it cannot be written
    int set(const std::string& path, SourceLocation where) {
        int error = calls_.create_file(path);
        if (error != 0 && error != EEXIST) { return error; }
        try {
            const std::string text = SavingProcess::text();
            OpenFile::to_write(calls_, path, where).write(0, std::as_bytes(std::span(text)));
        } catch (const FileError&) {
            if (!has_file(calls_, path)) { return ENOENT; }
            throw;
        }
        error = lock(path);
        if (error != 0 && !has_no_locks(error)) { return error; }
        // The locked file may be one that another job has removed meanwhile.
        return has_file(calls_, path) ? 0 : ENOENT;
    }
    /// Calls make(), which sets the mark, until no other job takes it for an abandoned one before it is locked.
    /// @returns 0, or the errno of the failure
    template <class F>
    int set_by(const F& make) {
        for (std::size_t tries = 1;; ++tries) {
            const int error = make();
            if (error == 0) { return 0; }
            unlock();
            if ((error != ENOENT && error != EWOULDBLOCK) || tries == 1000) { return error; }
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    /// Takes over the mark of a save that has ended. @returns nothing on success; otherwise why it must not be
    /// removed, which is "" while a save is running
    std::optional<std::string> take(const std::string& path, SourceLocation where) {
        const int error = lock(path);
        if (error == 0) { return std::nullopt; }
        if (error == EWOULDBLOCK || error == ENOENT) { return ""; }
        if (!has_no_locks(error)) { return errno_text(error); }
        try {
            if (SavingProcess::has_ended(read_file(calls_, path, 4096, where))) { return std::nullopt; }
        } catch (const FileError&) {}  // NOLINT(bugprone-empty-catch): nobody knows
        return "a save that may be under way";
    }
    void unlock() noexcept {
        if (lock_) { calls_.unlock(*std::exchange(lock_, std::nullopt)); }
    }

  private:
    int lock(const std::string& path) {
        int held = -1;
        const int error = calls_.lock(path, held);
        if (error == 0) { lock_ = held; }
        return error;
    }

    checkpoint::FileCalls& calls_;
    std::optional<int> lock_;
};

}  // namespace shardkit::detail
