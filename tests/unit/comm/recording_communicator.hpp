// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/source_location.hpp>

namespace comm_test {

/// The last call that reached an engine, as it arrived.
struct Call {
    std::string verb;
    int count = 0;
    shardkit::ReduceOp op{};
    const void* input = nullptr;
    std::size_t input_size = 0;
    void* output = nullptr;
    std::size_t output_size = 0;
    std::size_t to = 0;
    std::size_t from = 0;
    shardkit::SourceLocation where{};
};

/// Rank 1 of 3 ranks that are not there: notes each verb and moves nothing. Does not count traffic.
class RecordingCommunicator {
  public:
    using Stream = shardkit::InlineStream;
    using Where = shardkit::SourceLocation;

    explicit RecordingCommunicator(Call& call, std::string_view axes = "dp x cp") : call_(&call), axes_(axes) {}

    static std::size_t rank() { return 1; }
    static std::size_t size() { return 3; }
    Stream compute_stream() const { return {}; }
    std::string_view axes() const { return axes_; }
    RecordingCommunicator named(std::string_view axes) const { return RecordingCommunicator(*call_, axes); }
    RecordingCommunicator split(std::size_t, std::size_t, std::string_view axes,
                                Where where = Where::current()) const {
        note("split", where);
        return named(axes);
    }
    void barrier(Stream, Where where) const { note("barrier", where); }

    template <shardkit::Element T>
    void all_gather(std::span<const T> shard, std::span<T> full, Stream, Where where) const {
        note("all_gather", where, shard, full);
    }
    template <shardkit::Element In, shardkit::Element Out>
    void reduce_scatter(shardkit::ReduceOp op, std::span<const In> full, std::span<Out> shard, Stream,
                        Where where) const {
        note("reduce_scatter", where, full, shard).op = op;
    }
    template <shardkit::Element In, shardkit::Element Out>
    void all_reduce(shardkit::ReduceOp op, std::span<const In> input, std::span<Out> output, Stream,
                    Where where) const {
        note("all_reduce", where, input, output).op = op;
    }
    template <shardkit::Element T>
    void broadcast(std::span<T> values, std::size_t root, Stream, Where where) const {
        note("broadcast", where, std::span<const T>{}, values).from = root;
    }
    template <shardkit::Element T>
    void all_to_all(std::span<const T> sent, std::span<T> received, Stream, Where where) const {
        note("all_to_all", where, sent, received);
    }
    template <shardkit::Element T>
    void all_to_all_uneven(std::span<const T> sent, std::span<const std::size_t>, std::span<T> received,
                           std::span<const std::size_t>, Stream, Where where) const {
        note("all_to_all_uneven", where, sent, received);
    }
    template <shardkit::Element T>
    void send(std::span<const T> values, std::size_t to, Stream, Where where) const {
        note("send", where, values, std::span<T>{}).to = to;
    }
    template <shardkit::Element T>
    void receive(std::span<T> values, std::size_t from, Stream, Where where) const {
        note("receive", where, std::span<const T>{}, values).from = from;
    }
    template <shardkit::Element T>
    void send_receive(std::span<const T> sent, std::size_t to, std::span<T> received, std::size_t from, Stream,
                      Where where) const {
        Call& call = note("send_receive", where, sent, received);
        call.to = to;
        call.from = from;
    }

  private:
    template <class In = char, class Out = char>
    Call& note(std::string_view verb, Where where, std::span<const In> input = {}, std::span<Out> output = {}) const {
        *call_ = {std::string(verb),
                  call_->count + 1,
                  {},
                  input.data(),
                  input.size(),
                  output.data(),
                  output.size(),
                  0,
                  0,
                  where};
        return *call_;
    }

    Call* call_;
    std::string axes_;
};

}  // namespace comm_test
