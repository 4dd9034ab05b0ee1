// SPDX-License-Identifier: Apache-2.0
// Linked with the program of the checkpoints in place of make_files.cpp: what is written into the page cache differs
// in one byte of each file of tensors.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "../../benchmarks/checkpoints/files.hpp"

namespace benchmarks::checkpoints {

namespace {

class SpoiledFiles final : public CountedFiles {
  public:
    SpoiledFiles() : CountedFiles(false) {}
    int write(int file, std::uint64_t offset, std::span<const std::byte> bytes, std::size_t& count) override {
        std::vector<std::byte> spoiled(bytes.begin(), bytes.end());
        if (offset == 4096) { spoiled[0] ^= std::byte{1}; }  // where the first tensor begins
        return CountedFiles::write(file, offset, spoiled, count);
    }
};

}  // namespace

std::unique_ptr<CountedFiles> make_files(bool to_disk) {
    return to_disk ? std::make_unique<CountedFiles>(true) : std::make_unique<SpoiledFiles>();
}

}  // namespace benchmarks::checkpoints
