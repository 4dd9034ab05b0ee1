// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <shardkit/comm/ranks_per_host.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/not_copied.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/verbs/broadcast.hpp>
#include <shardkit/verbs/send_receive.hpp>

namespace shardkit::detail {

/// What a reshard asks of the engine of the ranks of both sides.
class ReshardWire : NotCopied {
  public:
    /// Bytes to send or to receive. If they are staged, they lie in the host's memory of `staging`, and otherwise in
    /// the engine's.
    struct Message {
        std::byte* at = nullptr;
        std::size_t bytes = 0;
        std::size_t peer = 0;
        bool staged = false;
    };

    explicit ReshardWire(Rank& rank) : rank_(rank) {}

    /// Returns whether the engine's memory is the host's.
    bool on_host() const noexcept { return host_reads(rank_.compute_stream()); }
    /// Returns the number of each rank's host.
    List<std::size_t> hosts() const {
        List<std::size_t> hosts(rank_.world_size());
        for (std::size_t r = 0; r < hosts.size(); ++r) { hosts[r] = rank_.world().host_of(r); }
        return hosts;
    }
    /// Gives every rank the bytes of `root`. Collective; the host waits.
    void broadcast(std::span<std::byte> bytes, std::size_t root, SourceLocation where) {
        if (bytes.empty()) { return; }
        const auto stream = rank_.compute_stream();
        const auto sent = rank_.buffer<std::uint8_t>(bytes.size());
        host::AnyKernels::copy_bytes(stream, bytes.data(), sent.data(), bytes.size());
        shardkit::broadcast(rank_.world(), sent.span(), root, stream, where);
        host::AnyKernels::copy_bytes(stream, sent.data(), bytes.data(), bytes.size());
    }
    /// Allocates memory for a message of up to `bytes` each way. Every rank calls it alike.
    void stage(std::size_t bytes) {
        out_ = rank_.buffer<std::uint8_t>(bytes);
        in_ = rank_.buffer<std::uint8_t>(bytes);
        if (!on_host()) {
            host_out_.resize(bytes);
            host_in_.resize(bytes);
        }
    }
    std::byte* staging_to_send() noexcept { return host(out_, host_out_); }
    std::byte* staging_to_receive() noexcept { return host(in_, host_in_); }

    /// Sends and receives; a message without bytes is none. What is staged is there when it returns, all else after
    /// `finish`.
    void exchange(const Message& sent, const Message& received, SourceLocation where) {
        const auto stream = rank_.compute_stream();
        const std::span<std::uint8_t> out = memory(sent, out_);
        const std::span<std::uint8_t> in = memory(received, in_);
        if (!on_host() && sent.staged && sent.bytes > 0) {
            host::AnyKernels::copy_bytes(stream, host_out_.data(), out.data(), sent.bytes);
        }
        const std::span<const std::uint8_t> given = out;
        if (sent.bytes > 0 && received.bytes > 0) {
            send_receive(rank_.world(), given, sent.peer, in, received.peer, stream, where);
        } else if (sent.bytes > 0) {
            send(rank_.world(), given, sent.peer, stream, where);
        } else if (received.bytes > 0) {
            receive(rank_.world(), in, received.peer, stream, where);
        }
        if (!on_host()) {
            if (sent.staged && sent.bytes > 0) { stream.synchronize(); }  // before the next one is packed
            if (received.staged && received.bytes > 0) {
                host::AnyKernels::copy_bytes(stream, in.data(), host_in_.data(), received.bytes);
            }
        }
    }
    void finish() { rank_.compute_stream().synchronize(); }

  private:
    using Buffer = HostBuffer<std::uint8_t>;

    std::byte* host(const Buffer& buffer, std::vector<std::uint8_t>& copy) const noexcept {
        return reinterpret_cast<std::byte*>(on_host() ? buffer.data() : copy.data());
    }
    static std::span<std::uint8_t> memory(const Message& message, const Buffer& staging) noexcept {
        auto* const own = reinterpret_cast<std::uint8_t*>(message.at);
        return {message.staged ? staging.data() : own, message.bytes};
    }

    Rank& rank_;
    Buffer out_, in_;
    std::vector<std::uint8_t> host_out_, host_in_;  // where the engine's memory is a device's
};

}  // namespace shardkit::detail
