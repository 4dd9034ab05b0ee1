// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <shardkit/backend/host/communicator.hpp>
#include <shardkit/comm/any_stream.hpp>
#include <shardkit/compiled/context.hpp>
#include <shardkit/core/element.hpp>

namespace shardkit::compiled SHARDKIT_BUILD {

/// @throws UsageError for a device's
inline const AnyStream& of_host(const AnyStream& stream) {
    if (stream.on_device()) {
        refuse_use(
            {},
            "layers that tp or cp splits run as functions of the host in the compiled form, and this stream is "
            "a device's; expected the engine self, threads or mpi, or a header-only program");
    }
    return stream;
}

/// The kernels of layers that tensor or context parallelism splits, as functions of the host in a stream's order.
/// @throws UsageError for a stream of another engine than the host's
struct Engine::Kernels {
    template <class Work>
    static void for_each_index(const AnyStream& stream, std::uint64_t n, const Work& work) {
        of_host(stream).submit([=] {
            for (std::uint64_t i = 0; i < n; ++i) { work(i); }
        });
    }
    template <Element T>
    static void fill(const AnyStream& stream, std::span<T> to, std::type_identity_t<T> value) {
        of_host(stream).submit([=] { std::fill(to.begin(), to.end(), value); });
    }
    /// Copies from or into the host's own memory, and waits.
    template <Element T>
    static void copy_in(const AnyStream& stream, std::span<const T> from, std::span<T> to) {
        of_host(stream).synchronize();
        std::copy(from.begin(), from.end(), to.begin());
    }
    template <Element T>
    static void copy_out(const AnyStream& stream, std::span<const T> from, std::span<T> to) {
        copy_in(stream, from, to);
    }
    /// total[i] += addend[i]
    template <FloatingElement T>
    static void accumulate(const AnyStream& stream, std::span<const T> addend, std::span<T> total) {
        of_host(stream).submit([=] {
            for (std::size_t i = 0; i < total.size(); ++i) { total[i] += addend[i]; }
        });
    }
};

}  // namespace SHARDKIT_BUILD
