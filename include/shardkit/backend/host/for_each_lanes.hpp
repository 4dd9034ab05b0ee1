// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <tuple>
#include <utility>

#include <shardkit/backend/host/lanes.hpp>

namespace shardkit::host::detail {

/// An array that a loop reads.
template <class T>
struct Input {
    using Pointer = const T*;
    using Element = T;
    static constexpr bool reads = true;
    static constexpr bool writes = false;
    Pointer data;
};

/// An array that a loop reads and writes back.
template <class T>
struct InOut {
    using Pointer = T*;
    using Element = T;
    static constexpr bool reads = true;
    static constexpr bool writes = true;
    Pointer data;
};

/// An array that a loop only writes: what it held is not looked at.
template <class T>
struct Output {
    using Pointer = T*;
    using Element = T;
    static constexpr bool reads = false;
    static constexpr bool writes = true;
    Pointer data;
};

template <std::floating_point A, class F, class... S>
void run_lanes(std::size_t count, const F& f, const S&... streams) {
    if (use_avx2()) {
        avx2::run_lanes<A>(count, f, streams...);
    } else {
        compiled::run_lanes<A>(count, f, streams...);
    }
}

template <std::floating_point A>
inline constexpr std::size_t widest_count = widest_register / sizeof(A);

/// A register's worth of a stream, for the elements after the last whole register.
template <std::floating_point A, class S>
struct Tail {
    typename S::Element elements[widest_count<A>]{};

    Tail(const S& stream, std::size_t at, std::size_t rest) {
        if constexpr (S::reads) { std::copy_n(stream.data + at, rest, elements); }
    }
    S stream() { return {elements}; }
    void write_back(const S& stream, std::size_t at, std::size_t rest) const {
        if constexpr (S::writes) { std::copy_n(elements, rest, stream.data + at); }
    }
};

/// Calls f(lanes...) for every register's worth of the streams' `count` elements, and writes back what it
/// left in the lanes of InOut and Output streams. f must treat every lane alike; where it calls for a type
/// of lanes it must be a template, as the width is chosen at run time.
/// @post an element's result depends on that element alone, not on its position or on `count`
template <std::floating_point A, class F, class... S>
void for_each_lanes(std::size_t count, const F& f, const S&... streams) {
    const std::size_t rest = count % widest_count<A>;
    const std::size_t whole = count - rest;
    if (whole != 0) { run_lanes<A>(whole, f, streams...); }
    if (rest != 0) {
        std::tuple<Tail<A, S>...> tails{Tail<A, S>(streams, whole, rest)...};
        std::apply(
            [&](auto&... tail) {
                run_lanes<A>(widest_count<A>, f, tail.stream()...);
                (tail.write_back(streams, whole, rest), ...);
            },
            tails);
    }
}

}  // namespace shardkit::host::detail
