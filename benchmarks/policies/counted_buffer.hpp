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

/// While it lives, buffers that its thread makes stand on this account.
class AccountScope {
  public:
    explicit AccountScope(std::shared_ptr<ByteAccount> account)
        : before_(std::exchange(current(), std::move(account))) {}
    AccountScope(const AccountScope&) = delete;
    AccountScope& operator=(const AccountScope&) = delete;
    ~AccountScope() { current() = std::move(before_); }

    static std::shared_ptr<ByteAccount>& current() {
        thread_local std::shared_ptr<ByteAccount> account;
        return account;
    }

  private:
    std::shared_ptr<ByteAccount> before_;
};

/// The library's host buffer, whose bytes stand on the account that was its thread's when it was made. Used by its
/// rank's thread only.
template <class T>
class CountedBuffer {
  public:
    CountedBuffer() noexcept = default;
    explicit CountedBuffer(std::size_t size) : CountedBuffer(shardkit::HostBuffer<T>(size)) {}
    /// One that the engine has placed.
    explicit CountedBuffer(shardkit::HostBuffer<T> buffer)
        : buffer_(std::move(buffer)), account_(AccountScope::current()) {
        if (account_) { account_->take(buffer_.size() * sizeof(T)); }
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

/// An engine with such buffers; all else is the other engine's.
template <class Inner>
struct CountingEngine : Inner {
    template <class T>
    using Buffer = CountedBuffer<T>;
};

}  // namespace benchmarks::policies
