// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>

#include <shardkit/backend/host/copy_elements.hpp>
#include <shardkit/backend/host/rank_order_reduction.hpp>
#include <shardkit/backend/self/world.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/comm/traffic_log.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::self {

/// The communicator of a group of one rank. In place, every verb does nothing; out of place it copies, or converts
/// like a reduction over one rank. It allocates nothing. It is a cheap handle on a World; the contracts are those of
/// the functions in comm/.
class Communicator {
  public:
    using Stream = InlineStream;

    explicit Communicator(World& world, std::string_view axes = "world")
        : world_(&world), label_(&world.journal().label(axes)) {}

    static constexpr std::size_t rank() noexcept { return 0; }
    static constexpr std::size_t size() noexcept { return 1; }
    std::string_view axes() const noexcept { return label_->axes; }
    const engine::CommunicatorLabel& label() const noexcept { return *label_; }
    TrafficLog& traffic() const noexcept { return label_->journal.traffic(); }
    /// Returns the stream of verbs that are given none: they are done when they return.
    Stream compute_stream() const noexcept { return {}; }

    Communicator named(std::string_view axes) const { return Communicator(*world_, axes); }

    Communicator split(std::size_t, std::size_t, std::string_view axes, SourceLocation) const { return named(axes); }
    void barrier(Stream, SourceLocation) const noexcept {}

    template <Element T>
    void all_gather(std::span<const T> shard, std::span<T> full, Stream, SourceLocation) const noexcept {
        host::detail::copy_elements(shard.data(), full.data(), shard.size());
    }

    template <Element In, Element Out>
    std::size_t reduce_scatter(ReduceOp op, std::span<const In> full, std::span<Out> shard, Stream,
                               SourceLocation) const noexcept {
        return reduce(op, full, shard);
    }

    template <Element In, Element Out>
    std::size_t all_reduce(ReduceOp op, std::span<const In> input, std::span<Out> output, Stream,
                           SourceLocation) const noexcept {
        return reduce(op, input, output);
    }

    template <Element T>
    void broadcast(std::span<T>, std::size_t, Stream, SourceLocation) const noexcept {}

    template <Element T>
    void all_to_all(std::span<const T> sent, std::span<T> received, Stream, SourceLocation) const noexcept {
        host::detail::copy_elements(sent.data(), received.data(), sent.size());
    }

    template <Element T>
    void all_to_all_uneven(std::span<const T> sent, std::span<const std::size_t>, std::span<T> received,
                           std::span<const std::size_t>, Stream, SourceLocation) const noexcept {
        host::detail::copy_elements(sent.data(), received.data(), sent.size());
    }

    /// Refuses to send.
    /// @throws CommError always: the only peer is this rank, which cannot receive while it sends
    template <Element T>
    void send(std::span<const T>, std::size_t, Stream, SourceLocation where) const {
        throw_alone("send", where);
    }
    /// Refuses to receive.
    /// @throws CommError always: the only peer is this rank, which cannot send while it receives
    template <Element T>
    void receive(std::span<T>, std::size_t, Stream, SourceLocation where) const {
        throw_alone("receive", where);
    }
    /// Copies what this rank sends to itself.
    /// @throws CommError when the sizes differ
    template <Element T>
    void send_receive(std::span<const T> sent, std::size_t, std::span<T> received, std::size_t, Stream,
                      SourceLocation where) const {
        if (sent.size() != received.size()) {
            throw CommError("self", detail::concat("send_receive over ", label_->axes),
                            detail::concat("sends ", sent.size(), " elements, receives ", received.size()), where);
        }
        host::detail::copy_elements(sent.data(), received.data(), sent.size());
    }

  private:
    /// Converts the input to the result, and returns 0, the bytes moved between peers.
    template <class In, class Out>
    static std::size_t reduce([[maybe_unused]] ReduceOp op, std::span<const In> input,
                              std::span<Out> output) noexcept {
        if constexpr (std::is_same_v<In, Out>) {
            host::detail::copy_elements(input.data(), output.data(), input.size());
        } else {
            host::detail::reduce_in_rank_order<In, Out>(
                op, 1, input.size(), [&](std::size_t) { return input.data(); },
                host::detail::Result<Out>{output.data()});
        }
        return 0;
    }

    [[noreturn]] void throw_alone(std::string_view verb, SourceLocation where) const {
        throw CommError("self", detail::concat(verb, " over ", label_->axes),
                        "one rank alone would wait for itself for ever; use send_receive", where);
    }

    World* world_;
    const engine::CommunicatorLabel* label_;
};

}  // namespace shardkit::self
