// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <exception>

namespace shardkit {

/// A stream runs work in the order in which it was given. An event marks a point in one stream that another stream
/// can wait for; both calls return at once. A stream is a non-owning reference: copying it does not copy the queue.
template <class S>
concept Stream = std::copyable<S> && requires(const S stream, const typename S::Event event) {
    typename S::Event;
    requires std::default_initializable<typename S::Event>;  // a default event has already happened
    { stream.record() } -> std::same_as<typename S::Event>;
    stream.wait(event);
    stream.synchronize();
};

/// The host's stream: runs work in the caller before the call returns, so that every event has already happened.
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

namespace detail {

/// Makes the host wait for all streams, with synchronize(stream) for each.
/// @throws the first exception, after all streams were waited for
template <class Synchronize, Stream... S>
void synchronize_all(const Synchronize& synchronize, const S&... streams) {
    std::exception_ptr failure;
    for (const auto* const each : {&streams...}) {
        try {
            synchronize(*each);
        } catch (...) {
            if (!failure) { failure = std::current_exception(); }
        }
    }
    if (failure) { std::rethrow_exception(failure); }
}
}  // namespace detail

}  // namespace shardkit
