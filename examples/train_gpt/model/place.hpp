// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include <shardkit/core/element.hpp>

namespace train_gpt {

/// Where the model's arithmetic runs: HostPlace, or DevicePlaceOf on a GPU. A place does, in order:
///     each(n, work)         work(i) for every i below n; a GPU work.pack(p) for whole packs, where a work has it
///     rows(n, work)         work(row, r) for every r below n; `row` shares a row's loops out among its workers
///     columns(n, work)      work(columns, part) for neighbouring columns of n, and every part below column_parts
///     multiply(...)         products of matrices: see HostPlace
///     multiply_biased(a, b, bias, y, gelu)             y = a b + bias and, where `gelu` is not null, GELU(y) there
///     multiply_by_gelu_slope(a, b, x, result)          result = a b times GELU's slope at x; both in one product, or
///                                                      false, and nothing, where a place cannot
///     column_parts          in how many parts the rows of a matrix are summed by columns
///     Storage<T>            the type of activations where parameters are T; sums are made in Arithmetic<T>
///     CountsAttention       products that are made while one lives count as attention
///     heads_at_once(heads)  how many heads of attention have their scores in memory
///     tokens_ahead          how many tokens of coming steps lie there; 0: the host writes a step's own
/// A work is copied; its arithmetic is the same in all places, but for the order of sums.
struct HostPlace;

/// What the host says of its memory.
struct HostLayout {
    template <class T>
    using Storage = shardkit::Arithmetic<T>;
    static constexpr std::size_t column_parts = 1;
    static constexpr std::size_t heads_at_once(std::size_t /*heads*/) { return 1; }
    static constexpr std::size_t tokens_ahead = 0;
};
/// What a place on a device says of its memory.
struct DeviceLayout {
    template <class T>
    using Storage = T;
    /// So many threads for each column of a matrix: enough of them to keep a device busy.
    static constexpr std::size_t column_parts = 64;
    static constexpr std::size_t heads_at_once(std::size_t heads) { return heads; }
    static constexpr std::size_t tokens_ahead = std::size_t{4} << 20U;
};

/// The sum of f(0) ... f(n - 1) over eight running sums in a fixed order: the same bits on every run, and
/// independent chains that a compiler turns into vector instructions (a single chain may not be reordered).
template <class A, class F>
constexpr A lane_sum(std::size_t n, F f) {
    constexpr std::size_t lanes = 8;
    std::array<A, lanes> sums{};
    const std::size_t whole = n / lanes * lanes;
    for (std::size_t i = 0; i < whole; i += lanes) {
        for (std::size_t lane = 0; lane < lanes; ++lane) { sums[lane] += f(i + lane); }
    }
    for (std::size_t lane = 0; lane < n - whole; ++lane) { sums[lane] += f(whole + lane); }
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

/// The largest of f(0) ... f(n - 1), likewise in eight chains. A NaN may be passed over.
/// @pre n > 0
template <class F>
constexpr auto lane_max(std::size_t n, F f) {
    constexpr std::size_t lanes = 8;
    std::array<decltype(f(n)), lanes> highest{};
    highest.fill(f(0));
    const std::size_t whole = n / lanes * lanes;
    const auto take = [&](std::size_t lane, std::size_t i) {
        const auto value = f(i);
        highest[lane] = highest[lane] < value ? value : highest[lane];
    };
    for (std::size_t i = 0; i < whole; i += lanes) {
        for (std::size_t lane = 0; lane < lanes; ++lane) { take(lane, i + lane); }
    }
    for (std::size_t lane = 0; lane < n - whole; ++lane) { take(lane, whole + lane); }
    return *std::max_element(highest.begin(), highest.end());
}

/// A row's one worker, with the order of sums of the host.
struct WholeRow {
    /// f(i) for every i below n.
    template <class F>
    static constexpr void each(std::size_t n, F f) {
        for (std::size_t i = 0; i < n; ++i) { f(i); }
    }
    /// Does f() once, after all that came before and before all that comes next.
    template <class F>
    static constexpr void once(F f) {
        f();
    }
    template <class A, class F>
    static constexpr A sum(std::size_t n, F f) {
        return lane_sum<A>(n, f);
    }
    /// The sum over a column of many rows: one running sum on hosts.
    template <class A, class F>
    static constexpr A total(std::size_t n, F f) {
        A sum{0};
        for (std::size_t i = 0; i < n; ++i) { sum += f(i); }
        return sum;
    }
    /// @pre n > 0
    template <class F>
    static constexpr auto max(std::size_t n, F f) {
        return lane_max(n, f);
    }
};

/// Neighbouring columns of a matrix, at most so many.
template <std::size_t Most>
struct Columns {
    static constexpr std::size_t most = Most;
    std::size_t first;
    std::size_t count;
};
template <>
struct Columns<1> {
    static constexpr std::size_t most = 1;
    static constexpr std::size_t count = 1;
    std::size_t first;
};

/// As many neighbouring elements as a thread of a GPU reads or writes at once.
template <class S>
struct alignas(16) Pack {
    static constexpr std::size_t lanes = 16 / sizeof(S);
    S lane[lanes];
};
/// The packs that begin at `first`, at a multiple of 16 bytes.
template <class S>
constexpr Pack<S>* packs(S* first) {
    return reinterpret_cast<Pack<S>*>(first);
}
template <class S>
constexpr const Pack<S>* packs(const S* first) {
    return reinterpret_cast<const Pack<S>*>(first);
}

/// As each: to[i] = value.
template <class A>
struct Fill {
    A* to;
    A value;

    constexpr void operator()(std::size_t i) const { to[i] = value; }
};

}  // namespace train_gpt
