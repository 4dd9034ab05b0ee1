// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <exception>
#include <initializer_list>

namespace shardkit {

/// A stream runs work in the order it was given. Events mark a point in one stream that another
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

/// Runs work in the caller, before the call returns, so that every event has happened: the host's stream.
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

/// Lets the host wait for all of them with synchronize(stream) for each.
/// @throws what the first that failed throws, once all have been waited for
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

/// A stream of this kind throws where it is waited for what its work threw, and can leave that to the next wait.
template <class S>
concept KeepsFailures = Stream<S> && requires(const S& stream, const typename S::Event& event) {
    stream.settle();
    stream.settle(event);
};
/// Lets the host wait for all that the stream was given. For who has nobody to tell, a destructor say: what its work
/// threw is thrown by the next wait, or, where the stream cannot keep it, dropped.
template <Stream S>
void settle(const S& stream) noexcept {
    if constexpr (KeepsFailures<S>) {
        stream.settle();
    } else {
        try {
            stream.synchronize();
        } catch (...) {}  // NOLINT(bugprone-empty-catch)
    }
}
/// Settles several streams.
template <Stream... S>
void settle_all(const S&... streams) noexcept {
    (settle(streams), ...);
}
/// Settles a stream for later work of it, which is to run behind an event.
template <Stream S>
void settle(const S& stream, const typename S::Event& event) {
    if constexpr (KeepsFailures<S>) {
        stream.settle(event);
    } else {
        stream.wait(event);
    }
}

}  // namespace detail

}  // namespace shardkit
