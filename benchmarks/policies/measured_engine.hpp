// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/core/source_location.hpp>

#include "call_log.hpp"
#include "counted_buffer.hpp"

namespace benchmarks::policies {

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
