// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include <shardkit/backend/host/memory.hpp>
#include <shardkit/backend/host/verbs.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/verbs/communicator.hpp>

namespace comm_test {

namespace host = shardkit::host;

/// The last call that reached an engine, as it arrived.
struct Call {
    std::string_view verb;
    int count = 0;
    shardkit::ReduceOp op{};
    const void* input = nullptr;
    std::size_t input_size = 0;
    const void* output = nullptr;
    std::size_t output_size = 0;
    std::size_t to = 0;
    std::size_t from = 0;
    shardkit::SourceLocation where{};
};

/// One of ranks that are not there: notes each verb and moves nothing, but says that it has moved 1234 bytes.
class RecordingVerbs final : public host::Verbs {
    using Memory = host::Memory;
    using ConstMemory = host::ConstMemory;
    using Op = shardkit::ReduceOp;
    using Counts = std::span<const std::size_t>;

  public:
    static constexpr std::uint64_t moved = 1234;

    RecordingVerbs(Call& call, shardkit::engine::Journal& journal, std::size_t rank, std::size_t size,
                   std::string_view axes)
        : Verbs(rank, size, journal.label(axes)), call_(call) {}

    std::string_view engine_name() const noexcept override { return "recording"; }
    shardkit::engine::Traits traits() const noexcept override { return {}; }

    std::shared_ptr<const Verbs> named(std::string_view axes) const override {
        return std::make_shared<const RecordingVerbs>(call_, label().journal, rank(), size(), axes);
    }
    std::shared_ptr<const Verbs> split(std::size_t, std::size_t, std::string_view axes,
                                       const shardkit::Call& call) const override {
        note("split", call, {}, {});
        return named(axes);
    }
    void barrier(const shardkit::Stream&, const shardkit::Call& call) const override {
        note("barrier", call, {}, {});
    }

    std::uint64_t all_gather(ConstMemory shard, Memory full, const shardkit::Stream&,
                             const shardkit::Call& call) const override {
        note("all_gather", call, shard, full);
        return moved;
    }
    std::uint64_t reduce_scatter(const host::Reducer&, Op op, ConstMemory full, Memory shard, const shardkit::Stream&,
                                 const shardkit::Call& call) const override {
        note("reduce_scatter", call, full, shard);
        call_.op = op;
        return moved;
    }
    std::uint64_t all_reduce(const host::Reducer&, Op op, ConstMemory input, Memory output, const shardkit::Stream&,
                             const shardkit::Call& call) const override {
        note("all_reduce", call, input, output);
        call_.op = op;
        return moved;
    }
    std::uint64_t broadcast(Memory values, std::size_t root, const shardkit::Stream&,
                            const shardkit::Call& call) const override {
        note("broadcast", call, {}, values);
        call_.from = root;
        return moved;
    }
    std::uint64_t all_to_all(ConstMemory sent, Memory received, const shardkit::Stream&,
                             const shardkit::Call& call) const override {
        note("all_to_all", call, sent, received);
        return moved;
    }
    void all_to_all_uneven(ConstMemory sent, Counts, Memory received, Counts, const shardkit::Stream&,
                           const shardkit::Call& call) const override {
        note("all_to_all_uneven", call, sent, received);
    }
    void send(ConstMemory values, std::size_t to, const shardkit::Stream&,
              const shardkit::Call& call) const override {
        note("send", call, values, {});
        call_.to = to;
    }
    void receive(Memory values, std::size_t from, const shardkit::Stream&,
                 const shardkit::Call& call) const override {
        note("receive", call, {}, values);
        call_.from = from;
    }
    void send_receive(ConstMemory sent, std::size_t to, Memory received, std::size_t from, const shardkit::Stream&,
                      const shardkit::Call& call) const override {
        note("send_receive", call, sent, received);
        call_.to = to;
        call_.from = from;
    }

  private:
    void note(std::string_view verb, const shardkit::Call& call, ConstMemory input, Memory output) const {
        call_ = {.verb = verb,
                 .count = call_.count + 1,
                 .input = input.at,
                 .input_size = input.count,
                 .output = output.at,
                 .output_size = output.count,
                 .where = call.where};
    }

    Call& call_;
};

/// Rank 1 of 3, and what has reached its engine.
struct Recording {
    shardkit::engine::Journal journal;
    Call call;
    shardkit::Communicator comm = of(1, 3);

    shardkit::Communicator of(std::size_t rank, std::size_t size) {
        return shardkit::Communicator(std::make_shared<const RecordingVerbs>(call, journal, rank, size, "dp x cp"));
    }
};

}  // namespace comm_test
