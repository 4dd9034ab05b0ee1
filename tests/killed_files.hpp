// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <signal.h>
#include <unistd.h>

#include <shardkit/checkpoint/file_calls.hpp>

namespace killed_files {

/// Ends its process after call number `last` of those that change something.
class Killed : public shardkit::checkpoint::PosixFiles {
  public:
    explicit Killed(std::size_t last) : left_(last + 1) {}
    int make_folder(const std::string& path) override { return then(PosixFiles::make_folder(path)); }
    int create_file(const std::string& path) override { return then(PosixFiles::create_file(path)); }
    int reserve(int file, std::uint64_t bytes) override { return then(PosixFiles::reserve(file, bytes)); }
    int write(int file, std::uint64_t offset, std::span<const std::byte> bytes, std::size_t& written) override {
        return then(PosixFiles::write(file, offset, bytes, written));
    }
    int sync(int file) override { return then(PosixFiles::sync(file)); }
    int sync_folder(const std::string& path) override { return then(PosixFiles::sync_folder(path)); }
    int rename(const std::string& from, const std::string& to) override { return then(PosixFiles::rename(from, to)); }

  private:
    int then(int result) {
        if (--left_ == 0) { ::kill(::getpid(), SIGKILL); }
        return result;
    }
    std::atomic<std::size_t> left_;
};

}  // namespace killed_files
