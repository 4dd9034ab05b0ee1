// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include <shardkit/backend/host/lanes.hpp>
#include <shardkit/backend/host/target.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/exact_sum.hpp>
#include <shardkit/detail/not_copied.hpp>

namespace shardkit::host::detail {

/// Calls step(0) ... step(count - 1). The fixed length of the inner loop lets compilers vectorise it at -O2.
template <class Step>
inline void for_each_index(std::size_t count, Step step) noexcept {
    constexpr std::size_t piece = 64;
    const std::size_t whole = count - count % piece;
    for (std::size_t i = 0; i < whole; i += piece) {
        for (std::size_t j = 0; j < piece; ++j) { step(i + j); }
    }
    for (std::size_t i = whole; i < count; ++i) { step(i); }
}

/// An array that a loop reads, writes, or both.
template <class T, bool Reads, bool Writes>
struct LaneStream {
    using Pointer = std::conditional_t<Writes, T*, const T*>;
    using Element = T;
    static constexpr bool reads = Reads;
    static constexpr bool writes = Writes;
    Pointer data;
};
template <class T>
using Input = LaneStream<T, true, false>;
template <class T>
using InOut = LaneStream<T, true, true>;
template <class T>
using Output = LaneStream<T, false, true>;

}  // namespace shardkit::host::detail

namespace shardkit::host::detail SHARDKIT_HOST_TARGET {

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

/// The elements of a stream after the last full register or block, of `Count` elements.
template <std::size_t Count, class S>
struct Tail {
    typename S::Element elements[Count]{};

    Tail(const S& stream, std::size_t at, std::size_t rest) {
        if constexpr (S::reads) { std::copy_n(stream.data + at, rest, elements); }
    }
    S stream() { return {elements}; }
    void write_back(const S& stream, std::size_t at, std::size_t rest) const {
        if constexpr (S::writes) { std::copy_n(elements, rest, stream.data + at); }
    }
};

/// Calls f(lanes...) for every register of the streams' `count` elements, and writes the lanes of InOut and Output
/// streams back. f must treat all lanes equally. If it names the type of the lanes it must be a template, as the
/// width is chosen at run time.
/// @post an element's result depends on that element alone, not on its position or on `count`
template <std::floating_point A, class F, class... S>
void for_each_lanes(std::size_t count, const F& f, const S&... streams) {
    const std::size_t rest = count % widest_count<A>;
    const std::size_t whole = count - rest;
    if (whole != 0) { run_lanes<A>(whole, f, streams...); }
    if (rest != 0) {
        const auto run = [&](Tail<widest_count<A>, S>... tails) {
            run_lanes<A>(widest_count<A>, f, tails.stream()...);
            (tails.write_back(streams, whole, rest), ...);
        };
        run({streams, whole, rest}...);
    }
}

template <class Storage, std::size_t Count, class F, class... S>
void run_state_blocks(std::size_t blocks, const F& f, const StateStreams<Storage, Count>& states,
                      const S&... streams) {
    if (use_wide()) {
        wide::run_state_blocks(blocks, f, states, streams...);
    } else if (use_avx2()) {
        avx2::run_state_blocks(blocks, f, states, streams...);
    } else {
        compiled::run_state_blocks(blocks, f, states, streams...);
    }
}

/// Calls f(lanes of the streams..., lanes of the states...) like for_each_lanes, for fp32 arithmetic and states that
/// are stored otherwise.
/// @pre where states are blocks, they begin with one
template <class Storage, std::size_t Count, class F, class... S>
void for_each_state_block(std::size_t count, const F& f, const StateStreams<Storage, Count>& states,
                          const S&... streams) {
    const std::size_t rest = count % Block8::block;
    const std::size_t whole = count - rest;
    run_state_blocks(whole / Block8::block, f, states, streams...);
    if (rest == 0) { return; }
    using Element = typename StatePointers<Storage>::Element;
    Element elements[Count][Block8::block]{};
    StateStreams<Storage, Count> last = states;
    last.element += whole;
    for (std::size_t s = 0; s < Count; ++s) {
        std::copy_n(states.pointers[s].elements + whole, rest, elements[s]);
        last.pointers[s].elements = elements[s];
        if (states.pointers[s].scales != nullptr) { last.pointers[s].scales += whole / Block8::block; }
    }
    const auto run = [&](Tail<Block8::block, S>... tails) {
        run_state_blocks(1, f, last, tails.stream()...);
        (tails.write_back(streams, whole, rest), ...);
    };
    run({streams, whole, rest}...);
    for (std::size_t s = 0; s < Count; ++s) { std::copy_n(elements[s], rest, states.pointers[s].elements + whole); }
}

/// Whether a conversion needs explicit vectors: those of fp16 have branches; compilers vectorise the others.
template <class From, class To>
inline constexpr bool needs_lanes = (std::same_as<From, fp16> && std::floating_point<To>) ||
                                    (std::same_as<To, fp16> && std::floating_point<From>);

template <std::floating_point A, class From, class To>
void convert_by_lanes(const From* from, To* to, std::size_t count) noexcept {
    for_each_lanes<A>(
        count, [](auto source, auto& target) __attribute__((always_inline)) { target = source; }, Input<From>{from},
        Output<To>{to});
}

/// Writes to[i] = from[i] in the arithmetic type A, for `count` elements; the arrays must not overlap.
template <class A, Element In>
void widen_block(const In* from, A* to, std::size_t count) noexcept {
    if constexpr (needs_lanes<In, A>) {
        convert_by_lanes<A>(from, to, count);
    } else {
        for_each_index(count, [&](std::size_t i) { to[i] = static_cast<A>(static_cast<Arithmetic<In>>(from[i])); });
    }
}

/// Writes to[i] = from[i] rounded to Out, for `count` elements; the arrays must not overlap.
template <Element Out, class A>
void round_block(const A* from, Out* to, std::size_t count) noexcept {
    if constexpr (needs_lanes<A, Out>) {
        convert_by_lanes<A>(from, to, count);
    } else {
        for_each_index(count, [&](std::size_t i) { to[i] = static_cast<Out>(from[i]); });
    }
}

/// Writes to sums[p] the sum of term(element) over the p-th pack of `elements`, in A: halves of the pack are added,
/// element by element, until one is left. Missing elements of the last pack count as zeros.
/// @pre term(0) is 0; `sums` has room for all packs
template <std::floating_point A, FloatingElement T, class Term>
void pack_sums(std::span<const T> elements, const Term& term, A* sums) {
    constexpr std::size_t pack = pack_elements<T>;
    const auto add = [&](const T* from, std::size_t packs, A* to) {
        return use_avx2() ? avx2::pack_sums<A>(from, packs, term, to) : compiled::pack_sums<A>(from, packs, term, to);
    };
    const std::size_t whole = elements.size() / pack;
    if (whole != 0) { add(elements.data(), whole, sums); }
    if (const std::size_t rest = elements.size() % pack; rest != 0) {
        T padded[pack]{};
        std::copy_n(elements.data() + whole * pack, rest, padded);
        add(padded, 1, sums + whole);
    }
}

template <bool Zeros, std::floating_point A>
NearSum near_sum(const A* sums, std::uint64_t lowest) {
    return use_avx2() ? avx2::add_near<Zeros>(sums, lowest) : compiled::add_near<Zeros>(sums, lowest);
}

/// Adds sums of packs to `total`, exactly, `near_sums` at a time: in a fraction of an ExactWindow's time where those
/// that are not zero are near each other, and A holds what they are of.
template <std::floating_point A>
class NearSums : shardkit::detail::NotCopied {
  public:
    explicit NearSums(ExactSum& total) noexcept : total_(total) {}
    ~NearSums() { hand_over(); }

    /// Adds `near_sums` of them if they are. Returns whether they are; *zeros, whether there may be zeros.
    bool add(const A* sums, bool* zeros) noexcept {
        NearSum sum = {.shifts = NearSum::range};
        if (lowest_ != 0) { sum = near_sum<false>(sums, lowest_); }
        *zeros = sum.shifts >= NearSum::range;
        if (*zeros) {
            hand_over();
            lowest_ = lowest_of(sums);
            sum = near_sum<true>(sums, lowest_);
            if (sum.shifts >= NearSum::range) { return false; }
        }
        sum_.add(sum.low, sum.high);
        if (sum_.high >> most_bits != 0) { hand_over(); }
        return true;
    }

  private:
    static constexpr std::uint64_t half = NearSum::range / 2;
    static constexpr bool single = sizeof(A) < sizeof(double);
    static constexpr std::uint64_t least = single ? 1023 - 80 : 1;  // the exponents of sums that holds_squares()
    static constexpr std::uint64_t largest = single ? 1023 + 127 : 2046;
    /// Of the upper word: the rest is below the end of an ExactSum's digits, wherever the lowest bit is.
    static constexpr std::uint64_t most_bits = 32;

    /// Returns the exponent from which on sums are near the first one that is not zero.
    static std::uint64_t lowest_of(const A* sums) noexcept {
        const A* const some = std::find_if(sums, sums + near_sums - 1, [](A sum) { return sum != 0; });
        const std::uint64_t exponent = std::bit_cast<std::uint64_t>(static_cast<double>(*some)) >> 52U;
        return std::clamp(exponent, least + half, largest - half) - half;
    }
    void hand_over() noexcept {
        if (lowest_ != 0) { total_.add_integer(lowest_ - 1, sum_.low, sum_.high); }
        sum_ = {};
    }

    ExactSum& total_;
    std::uint64_t lowest_ = 0;  // 0: none yet
    NearSum sum_;
};

}  // namespace shardkit::host::detail SHARDKIT_HOST_TARGET
