// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <shardkit/checkpoint/file_calls.hpp>

namespace benchmarks::checkpoints {

/// The machine's file system, whose bytes are counted, and which may leave them in the page cache.
class CountedFiles : public shardkit::checkpoint::PosixFiles {
  public:
    explicit CountedFiles(bool to_disk) : to_disk_(to_disk) {}

    int write(int file, std::uint64_t offset, std::span<const std::byte> bytes, std::size_t& count) override {
        const int error = PosixFiles::write(file, offset, bytes, count);
        written += count;
        return error;
    }
    int read(int file, std::uint64_t offset, std::span<std::byte> bytes, std::size_t& count) override {
        const int error = PosixFiles::read(file, offset, bytes, count);
        was_read += count;
        return error;
    }
    int sync(int file) override { return to_disk_ ? PosixFiles::sync(file) : 0; }
    int sync_folder(const std::string& path) override { return to_disk_ ? PosixFiles::sync_folder(path) : 0; }

    std::atomic<std::uint64_t> written{0};
    std::atomic<std::uint64_t> was_read{0};

  private:
    bool to_disk_;
};

/// @param to_disk  else what was written stays in the page cache
std::unique_ptr<CountedFiles> make_files(bool to_disk);

}  // namespace benchmarks::checkpoints
