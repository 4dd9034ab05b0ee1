// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/immortal.hpp>

namespace shardkit::checkpoint {

/// The file system calls of a checkpoint. Derive from it to use another store, for example an object store, or to
/// make calls fail in a test. It is virtual and not a type parameter: each call costs a system call anyway, and a
/// template would compile the checkpoint code once for each store.
/// Every function returns 0 or an errno. Files are numbers that the store chooses. Calls come from the ranks' threads
/// and from background writers, several at a time.
class FileCalls {
  public:
    virtual ~FileCalls() = default;

    /// Makes a folder whose parent exists. EEXIST when the name exists.
    virtual int make_folder(const std::string& path) = 0;
    /// Makes a new, empty file.
    virtual int create_file(const std::string& path) = 0;
    virtual int open_to_write(const std::string& path, int& file) = 0;
    virtual int open_to_read(const std::string& path, int& file, std::uint64_t& bytes) = 0;
    /// Makes sure that the file has at least that many bytes (zeros where nothing was written) and space for them, so
    /// that ENOSPC comes here and not during writes. Other writers may write meanwhile.
    virtual int reserve(int file, std::uint64_t bytes) = 0;
    /// Writes some of `bytes`, at least one, at `offset`, which may lie beyond the file's end.
    virtual int write(int file, std::uint64_t offset, std::span<const std::byte> bytes, std::size_t& written) = 0;
    /// Reads some of `bytes`; none only at the end of the file.
    virtual int read(int file, std::uint64_t offset, std::span<std::byte> bytes, std::size_t& count) = 0;
    /// Makes the file's contents durable against a loss of power.
    virtual int sync(int file) = 0;
    /// Closes the file, even if it returns an error.
    virtual int close(int file) = 0;
    /// Makes the names in a folder durable against a loss of power.
    virtual int sync_folder(const std::string& path) = 0;
    /// Lists the names in a folder, in any order.
    virtual int list(const std::string& path, std::vector<std::string>& names) = 0;
    /// Renames atomically. EEXIST when `to` exists.
    virtual int rename(const std::string& from, const std::string& to) = 0;
    /// Exchanges two names atomically. EINVAL, ENOSYS or ENOTSUP where that is not possible: then they are renamed
    /// one after the other.
    virtual int exchange(const std::string& a, const std::string& b) = 0;
    /// Removes a file. EISDIR or EPERM for a folder.
    virtual int remove_file(const std::string& path) = 0;
    virtual int remove_folder(const std::string& path) = 0;
    /// Sets `link` if a name is a link to a place elsewhere, from which nothing is ever removed. ENOENT if the name
    /// does not exist. A store without links need not override this.
    virtual int is_link(const std::string& /*path*/, bool& link) {
        link = false;
        return 0;
    }
    /// Marks a file as used by this process until `unlock` or the end of the process, even a crash. EWOULDBLOCK when
    /// another process uses it. ENOSYS, ENOTSUP, ENOLCK or EINVAL where locks are not supported: saves then work
    /// without, and remove what other saves left only if it is known to be abandoned (see docs/checkpoints.md).
    virtual int lock(const std::string& file, int& held) = 0;
    virtual void unlock(int held) = 0;
};

/// The machine's file system, through POSIX and Linux calls.
class PosixFiles : public FileCalls {
  public:
    int make_folder(const std::string& path) override { return result(::mkdir(path.c_str(), 0777)); }
    int create_file(const std::string& path) override {
        const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        return file < 0 ? errno : result(::close(file));
    }
    int open_to_write(const std::string& path, int& file) override {
        file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
        return file < 0 ? errno : 0;
    }
    int open_to_read(const std::string& path, int& file, std::uint64_t& bytes) override {
        // Opening something else than a regular file might wait for a writer.
        file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (file < 0) { return errno; }
        struct stat status {};
        int error = result(::fstat(file, &status));
        if (error == 0 && !S_ISREG(status.st_mode)) { error = S_ISDIR(status.st_mode) ? EISDIR : EINVAL; }
        if (error != 0) {
            ::close(file);
            file = -1;
        }
        bytes = static_cast<std::uint64_t>(status.st_size);
        return error;
    }
    int reserve(int file, std::uint64_t bytes) override {
        if (bytes == 0) { return 0; }
        const int error = result(::fallocate(file, 0, 0, static_cast<off_t>(bytes)));
        // A file system that cannot reserve reports ENOSPC during writes. No write goes beyond `bytes`, so nothing is
        // truncated.
        return error == EOPNOTSUPP || error == ENOSYS ? result(::ftruncate(file, static_cast<off_t>(bytes))) : error;
    }
    int write(int file, std::uint64_t offset, std::span<const std::byte> bytes, std::size_t& written) override {
        const auto count = ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
        written = count < 0 ? 0 : static_cast<std::size_t>(count);
        return count < 0 ? errno : 0;
    }
    int read(int file, std::uint64_t offset, std::span<std::byte> bytes, std::size_t& count) override {
        const auto got = ::pread(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
        count = got < 0 ? 0 : static_cast<std::size_t>(got);
        return got < 0 ? errno : 0;
    }
    int sync(int file) override { return unless_nothing_to_sync(result(::fdatasync(file))); }
    int close(int file) override { return result(::close(file)); }
    int sync_folder(const std::string& path) override {
        const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (folder < 0) { return errno; }
        const int error = unless_nothing_to_sync(result(::fsync(folder)));
        ::close(folder);
        return error;
    }
    int list(const std::string& path, std::vector<std::string>& names) override {
        const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), &::closedir);
        if (folder == nullptr) { return errno; }
        for (;;) {
            errno = 0;
            const dirent* const entry = ::readdir(folder.get());
            if (entry == nullptr) { return errno; }
            const std::string name = entry->d_name;
            if (name != "." && name != "..") { names.push_back(name); }
        }
    }
    int rename(const std::string& from, const std::string& to) override {
        const int error = result(::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE));
        if (error != EINVAL && error != ENOSYS) { return error; }
        // The file system lacks that flag. A folder that is not empty is never replaced.
        struct stat status {};
        if (::lstat(to.c_str(), &status) == 0) { return EEXIST; }
        return result(::rename(from.c_str(), to.c_str()));
    }
    int exchange(const std::string& a, const std::string& b) override {
        return result(::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE));
    }
    int remove_file(const std::string& path) override { return result(::unlink(path.c_str())); }
    int remove_folder(const std::string& path) override { return result(::rmdir(path.c_str())); }
    int is_link(const std::string& path, bool& link) override {
        struct stat status {};
        const int error = result(::lstat(path.c_str(), &status));
        link = error == 0 && S_ISLNK(status.st_mode);
        return error;
    }
    int lock(const std::string& file, int& held) override {
        // Opened for writing, as NFS locks other files only locally.
        held = ::open(file.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (held < 0) { return errno; }
        const int error = result(::flock(held, LOCK_EX | LOCK_NB));
        if (error != 0) { unlock(held); }
        return error;
    }
    void unlock(int held) override { ::close(held); }

  private:
    static int result(int returned) noexcept { return returned == 0 ? 0 : errno; }
    static int unless_nothing_to_sync(int error) noexcept {
        return error == EINVAL || error == ENOSYS || error == EOPNOTSUPP ? 0 : error;
    }
};

}  // namespace shardkit::checkpoint

namespace shardkit::detail {
/// The default file system. Never destroyed: a pending save of static storage ends when the process does.
inline checkpoint::FileCalls& posix_files() { return immortal<checkpoint::PosixFiles>(); }
}  // namespace shardkit::detail
