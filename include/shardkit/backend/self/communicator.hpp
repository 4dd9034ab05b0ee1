// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include <shardkit/backend/host/copy_elements.hpp>
#include <shardkit/backend/host/memory.hpp>
#include <shardkit/backend/host/reducer.hpp>
#include <shardkit/backend/host/verbs.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/not_copied.hpp>
#include <shardkit/verbs/communicator.hpp>

namespace shardkit::self {

/// What the planner must know about the engine.
inline constexpr engine::Traits traits{.adds_along_trees = true};

namespace detail {

/// The verbs of a group of one rank. In place, every verb does nothing; out of place it copies, or converts like a
/// reduction over one rank. It allocates nothing.
class RankVerbs final : public host::Verbs {
  public:
    RankVerbs(engine::Journal& journal, std::string_view axes) : host::Verbs(0, 1, journal.label(axes)) {}

    std::string_view engine_name() const noexcept override { return "self"; }
    engine::Traits traits() const noexcept override { return self::traits; }

    std::shared_ptr<const host::Verbs> named(std::string_view axes) const override {
        return std::make_shared<const RankVerbs>(label().journal, axes);
    }
    std::shared_ptr<const host::Verbs> split(std::size_t, std::size_t, std::string_view axes,
                                             const Call&) const override {
        return named(axes);
    }
    void barrier(const Stream&, const Call&) const override {}

    std::uint64_t all_gather(host::ConstMemory shard, host::Memory full, const Stream& stream,
                             const Call&) const override {
        return copy(shard, full, stream);
    }
    std::uint64_t reduce_scatter(const host::Reducer& reducer, ReduceOp op, host::ConstMemory full,
                                 host::Memory shard, const Stream& stream, const Call&) const override {
        return reduce(reducer, op, full, shard, stream);
    }
    std::uint64_t all_reduce(const host::Reducer& reducer, ReduceOp op, host::ConstMemory input, host::Memory output,
                             const Stream& stream, const Call&) const override {
        return reduce(reducer, op, input, output, stream);
    }
    std::uint64_t broadcast(host::Memory, std::size_t, const Stream&, const Call&) const override { return 0; }
    std::uint64_t all_to_all(host::ConstMemory sent, host::Memory received, const Stream& stream,
                             const Call&) const override {
        return copy(sent, received, stream);
    }
    void all_to_all_uneven(host::ConstMemory sent, std::span<const std::size_t>, host::Memory received,
                           std::span<const std::size_t>, const Stream& stream, const Call&) const override {
        copy(sent, received, stream);
    }

    /// Refuses to send.
    /// @throws CommError always: the only peer is this rank, which cannot receive while it sends
    void send(host::ConstMemory, std::size_t, const Stream&, const Call& call) const override { throw_alone(call); }
    /// Refuses to receive.
    /// @throws CommError always: the only peer is this rank, which cannot send while it receives
    void receive(host::Memory, std::size_t, const Stream&, const Call& call) const override { throw_alone(call); }
    /// Copies what this rank sends to itself.
    /// @throws CommError when the sizes differ
    void send_receive(host::ConstMemory sent, std::size_t, host::Memory received, std::size_t, const Stream& stream,
                      const Call& call) const override {
        if (sent.count != received.count) {
            throw CommError("self", shardkit::detail::concat("send_receive over ", label().axes),
                            shardkit::detail::concat("sends ", sent.count, " elements, receives ", received.count),
                            call.where);
        }
        copy(sent, received, stream);
    }

  private:
    /// Copies, and returns 0, the bytes moved between peers.
    static std::uint64_t copy(host::ConstMemory from, host::Memory to, const Stream& stream) {
        stream.submit([=] { host::detail::copy_elements(from.at, to.at, from.bytes()); });
        return 0;
    }
    /// Converts the input to the result likewise.
    static std::uint64_t reduce(const host::Reducer& reducer, ReduceOp op, host::ConstMemory input,
                                host::Memory output, const Stream& stream) {
        if (reducer.in == reducer.out) { return copy(input, output, stream); }
        stream.submit([=, &reducer] {
            host::detail::reduce_in_rank_order(
                reducer, op, 1, input.count, [&](std::size_t) { return input.at; },
                host::detail::Result<std::byte>{output.at});
        });
        return 0;
    }

    [[noreturn]] void throw_alone(const Call& call) const {
        throw CommError("self", shardkit::detail::concat(name(call.signature.verb), " over ", label().axes),
                        "one rank alone would wait for itself for ever; use send_receive", call.where);
    }
};

}  // namespace detail

/// What the communicators of a single rank share; it must outlive them.
class World : shardkit::detail::NotCopied {
  public:
    engine::Journal& journal() noexcept { return journal_; }
    Communicator communicator() { return Communicator(std::make_shared<const detail::RankVerbs>(journal_, "world")); }

  private:
    engine::Journal journal_;
};

}  // namespace shardkit::self
