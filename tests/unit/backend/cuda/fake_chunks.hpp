// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <vector>

#include <shardkit/backend/cuda/arena.hpp>

/// Host memory as chunks, up to a limit; counts what was taken and given back.
class FakeChunks final : public shardkit::gpu::detail::ChunkSource {
  public:
    explicit FakeChunks(std::size_t limit = 1U << 20U) : limit_(limit) {}

    void* allocate(std::size_t bytes, shardkit::SourceLocation) override {
        if (bytes > limit_ - taken_bytes_) { throw std::bad_alloc(); }
        taken_bytes_ += bytes;
        chunks_.push_back(std::make_unique<std::byte[]>(bytes));
        return chunks_.back().get();
    }
    void free(void* chunk) noexcept override {
        std::erase_if(chunks_, [chunk](const auto& mine) { return mine.get() == chunk; });
    }

    std::size_t held() const noexcept { return chunks_.size(); }
    std::size_t taken_bytes() const noexcept { return taken_bytes_; }

  private:
    std::size_t limit_;
    std::size_t taken_bytes_ = 0;
    std::vector<std::unique_ptr<std::byte[]>> chunks_;
};
