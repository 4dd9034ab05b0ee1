// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#ifdef SHARDKIT_COMPILED
#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/backend/host/communicator.hpp>
#endif

// What layers that tensor or context parallelism splits need of an engine.

namespace shardkit {

namespace detail {

/// Kernels without an engine around them.
template <class K, class S>
struct KernelsOn {
    using Kernels = K;
    using Stream = S;
};
/// Any object that is passed to a kernel by copy, for the concepts: a table's entry, and a work.
struct AnyWork {
    constexpr void operator()() const {}
    constexpr void operator()(std::uint64_t /*index*/) const {}
    constexpr void operator()(const double* /*read*/) const {}
    static constexpr std::size_t most_reads = 1;
    constexpr std::span<const double> reads() const { return {}; }
};

template <class E>
concept HasKernels = requires {
    typename E::Kernels;
};
template <class E>
concept RunsByIndex = requires(const typename E::Stream& stream, std::uint64_t n, const AnyWork& work) {
    E::Kernels::for_each_index(stream, n, work);
};
template <class E>
concept HasRowWorkers = requires {
    E::Kernels::row_workers;
};
template <class E>
concept CountsRowWorkers =
    !HasRowWorkers<E> ||
    (std::convertible_to<decltype(E::Kernels::row_workers), std::size_t> && E::Kernels::row_workers >= 1);

}  // namespace detail

namespace engine {

#ifndef SHARDKIT_COMPILED  // whose one engine has them
/// The engine has kernels by index, for layers that tensor or context parallelism splits.
///     for_each_index(stream, n, work)       work(i) for every i below n, in any order. It is copied
///     row_workers                           optional, 1 without it: how many neighbouring indices of a launch read a
///                                           row together where that makes it faster; a constant of at least 1
template <class E>
concept IndexKernels = detail::HasKernels<E> && detail::RunsByIndex<E> && detail::CountsRowWorkers<E>;
#endif

}  // namespace engine

namespace detail {

/// Returns the number of workers that read one row together. An engine's kernels may define it: adjacent
/// workers then read adjacent columns. On hosts it is one, as a row is best read from begin to end.
template <class Kernels, class Stream>
constexpr std::size_t row_workers([[maybe_unused]] const Stream& stream) noexcept {
    if constexpr (requires { Kernels::row_workers_on(stream); }) {
        return Kernels::row_workers_on(stream);
    } else if constexpr (requires { Kernels::row_workers; }) {
        return Kernels::row_workers;
    } else {
        return 1;
    }
}

/// Says that an engine lacks what layers need that tensor or context parallelism splits.
template <class E>
struct IndexRules {
    static constexpr bool are_stated = true;
    static_assert(HasKernels<E> && RunsByIndex<E> && CountsRowWorkers<E>,
                  "split layers: Engine must satisfy engine::IndexKernels; see rank/index_kernels.hpp");
};

}  // namespace detail

}  // namespace shardkit
