// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/memory/host_buffer.hpp>

namespace benchmarks::policies {

/// What a model's collectives do on one rank. A step's addresses are the same every time, so that its collectives can
/// be made again without the step, on the same buffers.
class CallLog {
  public:
    /// Makes the call, or leaves it out.
    template <class Call>
    void make(const Call& call) {
        if (silent_) { return; }
        if (recording_) { calls_.emplace_back(call); }
        call();
    }
    /// f() without communication.
    template <class F>
    void silently(F f) {
        silent_ = true;
        f();
        silent_ = false;
    }
    /// f(), and remembers its collectives in place of those before.
    template <class F>
    void record(F f) {
        calls_.clear();
        recording_ = true;
        f();
        recording_ = false;
    }
    /// Makes the remembered collectives again, back to back.
    void replay() const {
        for (const auto& call : calls_) { call(); }
    }
    std::size_t size() const noexcept { return calls_.size(); }

  private:
    bool silent_ = false;
    bool recording_ = false;
    std::vector<std::function<void()>> calls_;
};

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

/// A communicator of another engine, whose collectives go through a log and whose buffers are counted.
template <class Inner>
class MeasuredCommunicator {
    using Where = shardkit::SourceLocation;
    using Op = shardkit::ReduceOp;

  public:
    using Stream = typename Inner::Stream;

    MeasuredCommunicator(Inner inner, CallLog& log, std::shared_ptr<ByteAccount> account)
        : inner_(inner), log_(&log), account_(std::move(account)) {}

    std::size_t rank() const { return inner_.rank(); }
    std::size_t size() const { return inner_.size(); }
    std::string_view axes() const { return inner_.axes(); }
    decltype(auto) traffic() const { return inner_.traffic(); }
    MeasuredCommunicator named(std::string_view axes) const { return {inner_.named(axes), *log_, account_}; }
    MeasuredCommunicator split(std::size_t color, std::size_t key, std::string_view axes,
                               Where where = Where::current()) const {
        return {inner_.split(color, key, axes, where), *log_, account_};
    }
    template <class T>
    CountedBuffer<T> buffer(std::size_t n) const {
        return CountedBuffer<T>(n, account_);
    }

    void barrier(const Stream& stream, Where where = Where::current()) const { inner_.barrier(stream, where); }
    template <class T>
    void all_gather(std::span<const T> shard, std::span<T> full, const Stream& stream, Where where) const {
        log_->make([=, c = inner_] { c.all_gather(shard, full, stream, where); });
    }
    template <class T>
    void all_gather_in_place(std::span<T> full, const Stream& stream, Where where) const {
        log_->make([=, c = inner_] { c.all_gather_in_place(full, stream, where); });
    }
    template <class In, class Out>
    void reduce_scatter(Op op, std::span<const In> full, std::span<Out> shard, const Stream& stream,
                        Where where) const {
        log_->make([=, c = inner_] { c.reduce_scatter(op, full, shard, stream, where); });
    }
    template <class T>
    void reduce_scatter_in_place(Op op, std::span<T> full, const Stream& stream, Where where) const {
        log_->make([=, c = inner_] { c.reduce_scatter_in_place(op, full, stream, where); });
    }
    template <class In, class Out>
    void all_reduce(Op op, std::span<const In> input, std::span<Out> output, const Stream& stream,
                    Where where) const {
        log_->make([=, c = inner_] { c.all_reduce(op, input, output, stream, where); });
    }
    template <class T>
    void all_reduce_in_place(Op op, std::span<T> values, const Stream& stream, Where where) const {
        log_->make([=, c = inner_] { c.all_reduce_in_place(op, values, stream, where); });
    }

  private:
    Inner inner_;
    CallLog* log_;
    std::shared_ptr<ByteAccount> account_;
};

/// An engine with such communicators; all else is the other engine's.
template <class Inner>
struct MeasuredEngine : Inner {
    using Communicator = MeasuredCommunicator<typename Inner::Communicator>;
    template <class T>
    using Buffer = CountedBuffer<T>;
};

}  // namespace benchmarks::policies
