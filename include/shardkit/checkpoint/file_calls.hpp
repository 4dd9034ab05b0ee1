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

namespace shardkit {

/// What a checkpoint asks of a file system: a store of one's own derives from it (an object store, say), and a test
/// lets calls fail. Virtual and not a type parameter: each call costs a trip into the kernel, so that nothing is won
/// by compiling a checkpoint's code for each of them.
/// Every function returns 0, or the errno that says why not. Files are numbers of the store's own choice. Calls come
/// from the ranks' threads and from those that write beside them, several at a time.
class FileCalls {
  public:
    virtual ~FileCalls() = default;

    /// EEXIST when there is something of that name. Its parent exists.
    virtual int make_folder(const std::string& path) = 0;
    /// A new file without bytes.
    virtual int create_file(const std::string& path) = 0;
    virtual int open_to_write(const std::string& path, int& file) = 0;
    virtual int open_to_read(const std::string& path, int& file, std::uint64_t& bytes) = 0;
    /// The file has at least that many bytes, zeros where nothing was written, and room for them: ENOSPC here, and
    /// not while they are written. Others may write into it meanwhile.
    virtual int reserve(int file, std::uint64_t bytes) = 0;
    /// Writes some of `bytes`, at least one, at `offset`, past the file's end too.
    virtual int write(int file, std::uint64_t offset, std::span<const std::byte> bytes, std::size_t& written) = 0;
    /// Reads some of `bytes`; none only at the file's end.
    virtual int read(int file, std::uint64_t offset, std::span<std::byte> bytes, std::size_t& count) = 0;
    /// What was written outlives a loss of power.
    virtual int sync(int file) = 0;
    /// The file is closed in any case.
    virtual int close(int file) = 0;
    /// A folder's names outlive a loss of power.
    virtual int sync_folder(const std::string& path) = 0;
    /// Names of what lies in a folder, in any order.
    virtual int list(const std::string& path, std::vector<std::string>& names) = 0;
    /// At once for whoever looks. EEXIST when there is something called `to`.
    virtual int rename(const std::string& from, const std::string& to) = 0;
    /// Both names at once for the other's folder. EINVAL, ENOSYS or ENOTSUP where that cannot be done: then one is
    /// renamed after the other.
    virtual int exchange(const std::string& a, const std::string& b) = 0;
    /// EISDIR or EPERM for a folder.
    virtual int remove_file(const std::string& path) = 0;
    virtual int remove_folder(const std::string& path) = 0;
    /// Whether a name is a link to what lies elsewhere, of which nothing is ever removed. ENOENT where nothing has
    /// the name. A store without links leaves this as it is.
    virtual int is_link(const std::string& /*path*/, bool& link) {
        link = false;
        return 0;
    }
    /// Marks a file as in use by this process until `unlock` or the process' end, however that comes; EWOULDBLOCK
    /// when another one uses it. ENOSYS, ENOTSUP, ENOLCK or EINVAL where nobody can: saves go on without, and remove
    /// what others left only where they know better (see docs/checkpoints.md).
    virtual int lock(const std::string& file, int& held) = 0;
    virtual void unlock(int held) = 0;
};

/// The file system of the machine, through POSIX and Linux.
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
        // What is no regular file may make the call wait for a writer.
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
        // A file system that cannot reserve finds out when it is written. Nobody writes past `bytes`: nothing is cut.
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
        // A file system without that flag: a folder that is not empty is never replaced.
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
        // Open for writing: of others NFS locks nothing on its server.
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

namespace detail {
/// Where nothing else was asked for. Immortal: a pending save of static storage ends when the process does.
inline FileCalls& posix_files() { return immortal<PosixFiles>(); }
}  // namespace detail

}  // namespace shardkit
