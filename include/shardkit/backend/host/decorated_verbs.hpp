// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <shardkit/backend/host/memory.hpp>
#include <shardkit/backend/host/verbs.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/comm/streams.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::host {

/// The verbs of another engine, around each of which a class of your own does something: it counts, waits, or goes
/// wrong on purpose. It overrides `decorate`, and `around`, which every call passes, or what else it changes.
class DecoratedVerbs : public Verbs {
  public:
    explicit DecoratedVerbs(std::shared_ptr<const Verbs> verbs)
        : Verbs(verbs->rank(), verbs->size(), verbs->label()), verbs_(std::move(verbs)) {}

    std::string_view engine_name() const noexcept override { return verbs_->engine_name(); }
    engine::Traits traits() const noexcept override { return verbs_->traits(); }
    Streams streams() const noexcept override { return verbs_->streams(); }
    std::size_t host_of(std::size_t rank) const noexcept override { return verbs_->host_of(rank); }
    std::shared_ptr<void> place(std::size_t bytes) const override { return verbs_->place(bytes); }
    std::shared_ptr<void> place_local(std::size_t bytes) const override { return verbs_->place_local(bytes); }
    std::size_t most_placed_bytes() const override { return verbs_->most_placed_bytes(); }
    const DeviceMemory* device_memory() const noexcept override { return verbs_->device_memory(); }
    void separate_reductions(SourceLocation where) const override { verbs_->separate_reductions(where); }
    void reserve_staging(std::size_t bytes, SourceLocation where) const override {
        verbs_->reserve_staging(bytes, where);
    }
    void compare_calls(SourceLocation where) const override { verbs_->compare_calls(where); }

    std::shared_ptr<const Verbs> named(std::string_view axes) const override { return decorate(verbs_->named(axes)); }
    std::shared_ptr<const Verbs> split(std::size_t color, std::size_t key, std::string_view axes,
                                       const Call& call) const override {
        std::shared_ptr<const Verbs> made;
        pass(call, {}, Stream(), [&] { made = verbs_->split(color, key, axes, call); });
        return decorate(std::move(made));
    }
    void barrier(const Stream& stream, const Call& call) const override {
        pass(call, {}, stream, [&] { verbs_->barrier(stream, call); });
    }

    std::uint64_t all_gather(ConstMemory shard, Memory full, const Stream& stream, const Call& call) const override {
        return pass(call, full, stream, [&] { return verbs_->all_gather(shard, full, stream, call); });
    }
    std::uint64_t reduce_scatter(const Reducer& reducer, ReduceOp op, ConstMemory full, Memory shard,
                                 const Stream& stream, const Call& call) const override {
        return pass(call, shard, stream,
                    [&] { return verbs_->reduce_scatter(reducer, op, full, shard, stream, call); });
    }
    std::uint64_t all_reduce(const Reducer& reducer, ReduceOp op, ConstMemory input, Memory output,
                             const Stream& stream, const Call& call) const override {
        return pass(call, output, stream,
                    [&] { return verbs_->all_reduce(reducer, op, input, output, stream, call); });
    }
    std::uint64_t broadcast(Memory values, std::size_t root, const Stream& stream, const Call& call) const override {
        return pass(call, values, stream, [&] { return verbs_->broadcast(values, root, stream, call); });
    }
    std::uint64_t all_to_all(ConstMemory sent, Memory received, const Stream& stream,
                             const Call& call) const override {
        return pass(call, received, stream, [&] { return verbs_->all_to_all(sent, received, stream, call); });
    }
    void all_to_all_uneven(ConstMemory sent, std::span<const std::size_t> send_counts, Memory received,
                           std::span<const std::size_t> receive_counts, const Stream& stream,
                           const Call& call) const override {
        pass(call, received, stream,
             [&] { verbs_->all_to_all_uneven(sent, send_counts, received, receive_counts, stream, call); });
    }
    void send(ConstMemory values, std::size_t to, const Stream& stream, const Call& call) const override {
        pass(call, {}, stream, [&] { verbs_->send(values, to, stream, call); });
    }
    void receive(Memory values, std::size_t from, const Stream& stream, const Call& call) const override {
        pass(call, values, stream, [&] { verbs_->receive(values, from, stream, call); });
    }
    void send_receive(ConstMemory sent, std::size_t to, Memory received, std::size_t from, const Stream& stream,
                      const Call& call) const override {
        pass(call, received, stream, [&] { verbs_->send_receive(sent, to, received, from, stream, call); });
    }

  protected:
    /// The decorated engine's part of a call, which `around` makes once.
    using Inner = std::function<void()>;

  private:
    /// Makes a call by `inner()`. It delivers to `delivered`, in the order of the stream; empty memory: nothing.
    virtual void around(const Call& /*call*/, Memory /*delivered*/, const Stream& /*stream*/,
                        const Inner& inner) const {
        inner();
    }
    /// Returns the same around other verbs of the engine.
    virtual std::shared_ptr<const Verbs> decorate(std::shared_ptr<const Verbs> verbs) const = 0;

    template <class Verb>
    std::invoke_result_t<const Verb&> pass(const Call& call, Memory delivered, const Stream& stream,
                                           const Verb& verb) const {
        if constexpr (std::is_void_v<std::invoke_result_t<const Verb&>>) {
            around(call, delivered, stream, [&] { verb(); });
        } else {
            std::uint64_t moved;
            around(call, delivered, stream, [&] { moved = verb(); });
            return moved;
        }
    }

    std::shared_ptr<const Verbs> verbs_;
};

}  // namespace shardkit::host
