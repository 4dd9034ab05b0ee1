// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace benchmarks::checkpoints {

/// The limit: files of a state's sizes that are there already, a part of each of them for every rank, by plain calls
/// of the system. Not the library's loops and calls, so that a mistake in these does not lower the bar.
class PlainFiles {
  public:
    static constexpr std::size_t files = 3;  ///< parameters and two moments
    static constexpr std::size_t bytes_a_call = std::size_t{1} << 20U;

    /// @param bytes of each file
    PlainFiles(const std::string& folder, std::uint64_t bytes, std::size_t rank, std::size_t ranks)
        : first_(rank * files / ranks),
          begin_(bytes / ranks * rank),
          end_(rank + 1 == ranks ? bytes : bytes / ranks * (rank + 1)) {
        for (std::size_t f = 0; f < files; ++f) {
            names_[f] = folder + "/plain" + std::to_string(f);
            memory_[f].assign(static_cast<std::size_t>(end_ - begin_), static_cast<char>('a' + f));
        }
    }

    /// Makes the files anew, with room for their bytes and none written: as those of a checkpoint are. On one rank.
    void make(std::uint64_t bytes) const {
        for (const std::string& name : names_) {
            const int file = opened(name, O_WRONLY | O_CREAT | O_EXCL);
            require(::posix_fallocate(file, 0, static_cast<off_t>(bytes)), "fallocate");
            require(::close(file) == 0 ? 0 : errno, "close");
        }
    }
    void remove() const {
        for (const std::string& name : names_) { ::unlink(name.c_str()); }
    }
    /// look(bytes) before each call.
    template <class Look>
    void write(bool to_disk, const Look& look) {
        for (const std::size_t f : order()) {
            const int file = opened(names_[f], O_WRONLY);
            each_call(f, [&](char* memory, std::size_t count, std::uint64_t at) {
                look(std::span<const char>(memory, count));
                return ::pwrite(file, memory, count, static_cast<off_t>(at));
            });
            if (to_disk) { require(::fdatasync(file) == 0 ? 0 : errno, "fdatasync"); }
            ::close(file);
        }
    }
    void read() {
        for (const std::size_t f : order()) {
            const int file = opened(names_[f], O_RDONLY);
            each_call(f, [&](char* memory, std::size_t count, std::uint64_t at) {
                return ::pread(file, memory, count, static_cast<off_t>(at));
            });
            ::close(file);
        }
    }
    /// Takes a folder's files out of the page cache, once they are on the disk.
    static void forget(const std::string& folder) {
        for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
            if (!entry.is_regular_file()) { continue; }
            const int file = opened(entry.path().string(), O_RDONLY);
            require(::fdatasync(file) == 0 ? 0 : errno, "fdatasync");
            require(::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED), "fadvise");
            ::close(file);
        }
    }

  private:
    static void require(int error, const char* call) {
        if (error != 0) { throw std::system_error(error, std::generic_category(), call); }
    }
    static int opened(const std::string& name, int flags) {
        const int file = ::open(name.c_str(), flags | O_CLOEXEC, 0666);
        require(file < 0 ? errno : 0, name.c_str());
        return file;
    }
    template <class Call>
    void each_call(std::size_t f, const Call& call) {
        for (std::uint64_t at = begin_; at < end_;) {
            const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(bytes_a_call, end_ - at));
            const auto done = call(memory_[f].data() + (at - begin_), count, at);
            require(done < 0 ? errno : done == 0 ? EIO : 0, names_[f].c_str());
            at += static_cast<std::uint64_t>(done);
        }
    }

    /// Each rank begins with another file, since only one at a time may write into one.
    std::array<std::size_t, files> order() const {
        std::array<std::size_t, files> all{};
        for (std::size_t k = 0; k < files; ++k) { all[k] = (k + first_) % files; }
        return all;
    }

    std::size_t first_;
    std::uint64_t begin_;
    std::uint64_t end_;
    std::array<std::string, files> names_;
    std::array<std::vector<char>, files> memory_;
};

}  // namespace benchmarks::checkpoints
