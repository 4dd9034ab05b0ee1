// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include <shardkit/memory/host_buffer.hpp>

namespace benchmarks::policies {

/// Bytes that the containers of one model hold on one rank, now and at most.
struct ByteAccount {
    std::size_t current = 0;
    std::size_t peak = 0;

    void take(std::size_t bytes) noexcept {
        current += bytes;
        peak = std::max(peak, current);
    }
};

/// The library's host buffer, whose bytes stand on an account while it lives. Used by its rank's thread only.
template <class T>
class CountedBuffer {
  public:
    CountedBuffer() noexcept = default;
    explicit CountedBuffer(std::size_t size, std::shared_ptr<ByteAccount> account = nullptr)
        : buffer_(size), account_(std::move(account)) {
        if (account_) { account_->take(size * sizeof(T)); }
    }
    CountedBuffer(CountedBuffer&& other) noexcept
        : buffer_(std::move(other.buffer_)), account_(std::move(other.account_)) {}
    CountedBuffer& operator=(CountedBuffer&& other) noexcept {
        std::swap(buffer_, other.buffer_);
        std::swap(account_, other.account_);
        return *this;
    }
    CountedBuffer(const CountedBuffer&) = delete;
    CountedBuffer& operator=(const CountedBuffer&) = delete;
    ~CountedBuffer() {
        if (account_) { account_->current -= buffer_.size() * sizeof(T); }
    }

    T* data() const noexcept { return buffer_.data(); }
    std::size_t size() const noexcept { return buffer_.size(); }
    auto span() const noexcept { return buffer_.span(); }

  private:
    shardkit::HostBuffer<T> buffer_;
    std::shared_ptr<ByteAccount> account_;
};

}  // namespace benchmarks::policies
