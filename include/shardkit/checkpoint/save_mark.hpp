// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <shardkit/checkpoint/file_calls.hpp>
#include <shardkit/checkpoint/open_file.hpp>
#include <shardkit/checkpoint/saving_process.hpp>
#include <shardkit/core/error.hpp>

namespace shardkit::detail {

/// A mark is a file beside an unfinished save. The saving process locks it, and it contains the text of
/// SavingProcess.
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
/// Makes a mark, and locks it where locks are supported. @returns 0, or the errno of the failure: EWOULDBLOCK or
/// ENOENT if another job took it for an abandoned one and may remove it
/// @throws FileError when it cannot be written
inline int set_mark(checkpoint::FileCalls& calls, const std::string& mark, std::optional<int>& lock,
                    SourceLocation where) {
    int error = calls.create_file(mark);
    if (error != 0 && error != EEXIST) { return error; }
    try {
        const std::string text = SavingProcess::text();
        OpenFile::to_write(calls, mark, where).write(0, std::as_bytes(std::span(text)));
    } catch (const FileError&) {
        if (!has_file(calls, mark)) { return ENOENT; }
        throw;
    }
    int held = -1;
    error = calls.lock(mark, held);
    if (error == 0) { lock = held; }
    if (error != 0 && !has_no_locks(error)) { return error; }
    // The locked file may be one that another job has removed meanwhile.
    return has_file(calls, mark) ? 0 : ENOENT;
}
/// Takes over the mark of a save that has ended, and locks it where locks are supported. @returns nothing on success;
/// otherwise why it must not be removed, which is "" while a save is running
inline std::optional<std::string> take_mark(checkpoint::FileCalls& calls, const std::string& mark,
                                            std::optional<int>& lock, SourceLocation where) {
    int held = -1;
    const int error = calls.lock(mark, held);
    if (error == 0) {
        lock = held;
        return std::nullopt;
    }
    if (error == EWOULDBLOCK || error == ENOENT) { return ""; }
    if (!has_no_locks(error)) { return errno_text(error); }
    try {
        if (SavingProcess::has_ended(read_file(calls, mark, 4096, where))) { return std::nullopt; }
    } catch (const FileError&) {}  // NOLINT(bugprone-empty-catch): nobody knows
    return "a save that may be under way";
}

}  // namespace shardkit::detail
