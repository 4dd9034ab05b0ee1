// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <shardkit/checkpoint/file_calls.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::detail {

/// Returns the text of an errno: "No space left on device (ENOSPC)".
inline std::string errno_text(int error) {
    const char* const name = ::strerrorname_np(error);
    return concat(::strerrordesc_np(error) != nullptr ? ::strerrordesc_np(error) : "unknown error", " (",
                  name != nullptr ? name : "?", ")");
}
/// Checks the result of a call. @throws FileError unless `error` is 0
inline void require(int error, const std::string& path, std::string_view what, SourceLocation where) {
    if (error != 0) { throw_file_error(path, where, what, ": ", errno_text(error)); }
}

/// A file that is open through FileCalls. Errors name the path. A failed call is never repeated: after an EIO a
/// second attempt may report success although data are lost.
class OpenFile {
  public:
    static OpenFile to_write(checkpoint::FileCalls& calls, std::string path, SourceLocation where) {
        int file = -1;
        require(calls.open_to_write(path, file), path, "cannot be opened for writing", where);
        return {calls, file, 0, std::move(path), where};
    }
    static OpenFile to_read(checkpoint::FileCalls& calls, std::string path, SourceLocation where) {
        int file = -1;
        std::uint64_t size = 0;
        const int error = calls.open_to_read(path, file, size);
        if (error == EISDIR) { throw FileError(path, "is a folder", where); }
        if (error == EINVAL) { throw FileError(path, "is no regular file", where); }
        require(error, path, "cannot be opened", where);
        return {calls, file, size, std::move(path), where};
    }

    const std::string& path() const noexcept { return path_; }
    std::uint64_t size() const noexcept { return size_; }  ///< when it was opened to be read

    /// Reserves space for that many bytes.
    void reserve(std::uint64_t bytes) const {
        const int error = uninterrupted([&] { return calls_->reserve(file(), bytes); });
        require(error, path_, concat("cannot be made with ", bytes, " bytes"), where_);
    }
    void write(std::uint64_t offset, std::span<const std::byte> bytes) const {
        in_parts(
            offset, bytes, "writing", where_,
            [&](std::uint64_t at, auto rest, std::size_t& count) { return calls_->write(file(), at, rest, count); },
            [&](std::uint64_t at) { return concat("writing at byte ", at, ": nothing was written"); });
    }
    void read(std::uint64_t offset, std::span<std::byte> bytes) const { read(offset, bytes, where_); }
    /// Reads for a call at `where`.
    void read(std::uint64_t offset, std::span<std::byte> bytes, SourceLocation where) const {
        in_parts(
            offset, bytes, "reading", where,
            [&](std::uint64_t at, auto rest, std::size_t& count) { return calls_->read(file(), at, rest, count); },
            [&](std::uint64_t at) {
                return concat("ends at byte ", at, ", but had ", size_, " bytes when it was opened");
            });
    }
    /// Makes everything written durable, and closes the file.
    void finish() {
        const int error = uninterrupted([&] { return calls_->sync(file()); });
        require(error, path_, "writing to the disk", where_);
        require(calls_.release()->close(file()), path_, "closing", where_);
    }

  private:
    struct Close {
        int file;
        void operator()(checkpoint::FileCalls* calls) const { calls->close(file); }
    };
    OpenFile(checkpoint::FileCalls& calls, int file, std::uint64_t size, std::string path, SourceLocation where)
        : calls_(&calls, Close{file}), path_(std::move(path)), where_(where), size_(size) {}

    int file() const noexcept { return calls_.get_deleter().file; }
    /// Repeats a call after a signal, and after nothing else.
    template <class Call>
    static int uninterrupted(const Call& call) {
        int error = 0;
        do { error = call(); } while (error == EINTR);
        return error;
    }
    /// Repeats call(offset, bytes, count), which moves `count` bytes, until all are moved. @param none  error text if
    /// none was moved
    template <class Byte, class Call, class OnEnd>
    void in_parts(std::uint64_t offset, std::span<Byte> bytes, std::string_view verb, SourceLocation where,
                  const Call& call, const OnEnd& none) const {
        while (!bytes.empty()) {
            std::size_t count = 0;
            const int error = uninterrupted([&] { return call(offset, bytes, count); });
            require(error, path_, concat(verb, " at byte ", offset), where);
            if (count == 0 || count > bytes.size()) { throw FileError(path_, none(offset), where); }
            offset += count;
            bytes = bytes.subspan(count);
        }
    }

    std::unique_ptr<checkpoint::FileCalls, Close> calls_;  // while the file is open
    std::string path_;
    SourceLocation where_;
    std::uint64_t size_;
};

/// Returns all bytes of an open file.
inline std::string read_all(const OpenFile& file) {
    std::string text(file.size(), '\0');
    file.read(0, std::as_writable_bytes(std::span(text)));
    return text;
}
/// Returns all bytes of the file at `path`. @throws FileError, also when it is larger than `most`
inline std::string read_file(checkpoint::FileCalls& calls, const std::string& path, std::uint64_t most,
                             SourceLocation where) {
    const OpenFile file = OpenFile::to_read(calls, path, where);
    if (file.size() > most) { throw_file_error(path, where, "has ", file.size(), " bytes, expected at most ", most); }
    return read_all(file);
}
/// Makes a new file with these bytes, and makes it durable.
inline void write_file(checkpoint::FileCalls& calls, const std::string& path, std::string_view text,
                       SourceLocation where) {
    require(calls.create_file(path), path, "cannot be created", where);
    OpenFile file = OpenFile::to_write(calls, path, where);
    file.write(0, std::as_bytes(std::span(text)));
    file.finish();
}

}  // namespace shardkit::detail
