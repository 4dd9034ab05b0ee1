// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <shardkit/backend/host/communicator.hpp>
#include <shardkit/compiled/context.hpp>
#include <shardkit/core/element.hpp>

namespace shardkit::compiled SHARDKIT_BUILD {

/// The kernels of layers that tensor or context parallelism splits, as functions of the host in a stream's order.
/// @throws UsageError for a stream of another engine than the host's
struct Engine::Kernels {
    template <class Work>
    static void for_each_index(const Stream& stream, std::uint64_t n, const Work& work) {
        stream.of_host().submit([=] {
            for (std::uint64_t i = 0; i < n; ++i) { work(i); }
        });
    }
    template <Element T>
    static void fill(const Stream& stream, std::span<T> to, std::type_identity_t<T> value) {
        stream.of_host().submit([=] { std::fill(to.begin(), to.end(), value); });
    }
    /// Copies from or into the host's own memory, and waits.
    template <Element T>
    static void copy_in(const Stream& stream, std::span<const T> from, std::span<T> to) {
        stream.of_host().synchronize();
        std::copy(from.begin(), from.end(), to.begin());
    }
    template <Element T>
    static void copy_out(const Stream& stream, std::span<const T> from, std::span<T> to) {
        copy_in(stream, from, to);
    }
    /// total[i] += addend[i]
    template <FloatingElement T>
    static void accumulate(const Stream& stream, std::span<const T> addend, std::span<T> total) {
        stream.of_host().submit([=] {
            for (std::size_t i = 0; i < total.size(); ++i) { total[i] += addend[i]; }
        });
    }
};

}  // namespace SHARDKIT_BUILD
