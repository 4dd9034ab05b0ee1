// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>
#include <vector>

#include <shardkit/backend/cub/launched_kernels.hpp>
#include <shardkit/backend/cub/norm.hpp>

#include "machine.hpp"

namespace shardkit::test {

/// A number of each thread of a warp, and what NormPass asks of a warp.
template <class A>
struct WarpValue {
    A of[gpu::detail::warp]{};

    friend WarpValue operator+(const WarpValue& a, const WarpValue& b) {
        WarpValue sum;
        for (std::size_t t = 0; t < gpu::detail::warp; ++t) { sum.of[t] = a.of[t] + b.of[t]; }
        return sum;
    }
};
struct SerialWarp {
    template <class A>
    WarpValue<A> choose(std::size_t distance, const WarpValue<A>& first, const WarpValue<A>& second) const {
        WarpValue<A> chosen;
        for (std::size_t t = 0; t < gpu::detail::warp; ++t) {
            chosen.of[t] = (t & distance) == 0 ? first.of[t] : second.of[t];
        }
        return chosen;
    }
    template <class A>
    WarpValue<A> exchange(std::size_t distance, const WarpValue<A>& value) const {
        WarpValue<A> exchanged;
        for (std::size_t t = 0; t < gpu::detail::warp; ++t) { exchanged.of[t] = value.of[t ^ distance]; }
        return exchanged;
    }
};
template <class A, class Pass>
WarpValue<A> pack_sums(const Pass& pass, const std::vector<typename Pass::Loaded>& loaded) {
    WarpValue<A> squares[Pass::vectors * Pass::lanes];
    for (std::size_t t = 0; t < gpu::detail::warp; ++t) {
        for (std::size_t i = 0; i < std::size(squares); ++i) {
            squares[i].of[t] = pass.template square<A>(loaded[t].vector[i / Pass::lanes].lane[i % Pass::lanes]);
        }
    }
    return Pass::pack_sum(squares, SerialWarp{});
}

/// The same in double, of the one vector of each thread of an index and its neighbours.
template <class Pass>
WarpValue<double> pack_sum_again(const Pass& pass, std::uint64_t index, std::size_t vector) {
    WarpValue<double> squares[Pass::lanes];
    for (std::size_t t = 0; t < gpu::detail::warp; ++t) {
        const auto elements = pass.load(index + t, vector);
        for (std::size_t i = 0; i < Pass::lanes; ++i) {
            squares[i].of[t] = pass.template square<double>(elements.lane[i]);
        }
    }
    return Pass::pack_sum(squares, SerialWarp{});
}

/// Runs what gpu::Kernels launches by a loop on the host's memory: the same passes, cut into the same vectors.
struct SerialLaunch {
    struct Stream {
        void synchronize() const {}
    };
    explicit SerialLaunch(Stream /*stream*/) {}

    /// Indices in descending order: an order that a device is allowed to run them in, and a loop would not.
    template <class Work>
    void operator()(std::uint64_t count, const Work& work, std::string_view /*kernel*/) const {
        for (std::uint64_t i = count; i > 0; --i) { work(i - 1); }
    }
};

struct SerialKernels : gpu::detail::LaunchedKernels<SerialLaunch> {
    template <class T>
    static void copy_in(Stream /*launch*/, std::span<const T> from, std::span<T> to) {
        std::copy(from.begin(), from.end(), to.begin());
    }
    template <class T>
    static void copy_out(Stream /*launch*/, std::span<const T> from, std::span<T> to) {
        std::copy(from.begin(), from.end(), to.begin());
    }
    template <FloatingElement T>
    static void norm_partial(Stream /*launch*/, std::span<const engine::NormPiece<T>> pieces, IndexRange positions,
                             const double* scale, double* into) {
        if (pieces.empty()) { return; }
        const gpu::detail::NormPass<T> pass = gpu::detail::norm_pass(pieces, positions, scale);
        using A = Arithmetic<T>;
        shardkit::detail::NormSum sum;
        const auto add = [&sum](std::size_t i, std::int64_t amount) { sum.add_part(i, amount); };
        // One warp, each thread with all indices of its number.
        std::vector<gpu::detail::NormThread<A, decltype(add)>> threads(
            gpu::detail::warp, gpu::detail::NormThread<A, decltype(add)>(add));
        for (std::uint64_t first = 0; first < pass.indices(); first += gpu::detail::warp) {
            std::vector<typename gpu::detail::NormPass<T>::Loaded> loaded;
            for (std::uint64_t t = 0; t < gpu::detail::warp; ++t) { loaded.push_back(pass.load(first + t)); }
            const auto sums = pack_sums<A>(pass, loaded);
            for (std::uint64_t t = 0; t < gpu::detail::warp; ++t) {
                for (const auto& vector : loaded[t].vector) {
                    if (!pass.finite(vector)) { add(ExactSum::numbers, 1); }
                }
                if (t % 2 != 0) { continue; }
                const std::size_t vector = gpu::detail::NormPass<T>::vector_of(static_cast<unsigned>(t));
                if (shardkit::detail::holds_squares(sums.of[t])) {
                    threads[t].take(sums.of[t]);
                } else {
                    threads[t].take_apart(pack_sum_again(pass, first, vector).of[t]);
                }
            }
        }
        for (auto& thread : threads) { thread.end(); }
        sum.add_to(into);
    }
};

/// A machine on the host's memory.
using SerialMachine = HostMachine<SerialKernels>;

}  // namespace shardkit::test
