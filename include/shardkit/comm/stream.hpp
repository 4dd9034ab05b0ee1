// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

namespace shardkit {

/// Something in which work runs in the order it was given. Events mark a point in one stream that another
/// stream can wait for; both calls return at once.
/// A stream is a non-owning reference: copying it does not copy the queue.
template <class S>
concept Stream = std::copyable<S> && requires(const S stream, const typename S::Event event) {
    typename S::Event;
    requires std::default_initializable<typename S::Event>;  // a default event has already happened
    { stream.record() } -> std::same_as<typename S::Event>;
    stream.wait(event);
    stream.synchronize();
};

/// The host's stream: work runs in the caller, before the call returns, so every event has happened.
struct InlineStream {
    struct Event {};
    static constexpr Event record() noexcept { return {}; }
    static constexpr void wait(Event) noexcept {}
    static constexpr void synchronize() noexcept {}

    template <class Work>
    static constexpr void submit(const Work& work) {
        work();
    }
};

static_assert(Stream<InlineStream>);

}  // namespace shardkit
