// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include <shardkit/backend/host/device_kernels.hpp>
#include <shardkit/backend/host/range_updates.hpp>
#include <shardkit/backend/host/tensor_table.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/kernels/norm_sum.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/layout/index_range.hpp>

namespace shardkit::host {

/// The Kernels of an engine: loops in the order of a stream of the host, and a launch on a stream of a device.
/// Pointers that a kernel is given are read when it runs, so that scalars which earlier work of the stream writes
/// (for example a clip coefficient) need no synchronisation.
/// Order:   stream-ordered; copy_in and copy_out return when the host's side is done.
/// @throws UsageError when no file of the program can launch a kernel that a device's stream is given;
///         std::invalid_argument when the sizes of a call's spans disagree
struct AnyKernels {
    /// What has the update of a range, by which an optimizer's rule is a value.
    using Loops = detail::RangeUpdates;

    /// On a device a warp's threads read 32 adjacent columns of a row of logits.
    static std::size_t row_workers_on(const Stream& stream) noexcept { return stream.on_device() ? 32 : 1; }

    template <Element T>
    static void fill(const Stream& stream, std::span<T> to, std::type_identity_t<T> value) {
        run(stream, engine::Fill<T>{to, value});
    }
    template <FloatingElement From, FloatingElement To>
    static void convert(const Stream& stream, std::span<const From> from, std::span<To> to,
                        SourceLocation where = SourceLocation::current()) {
        require_sizes("convert", from.size(), to.size(), where);
        run(stream, engine::Convert<From, To>{from, to});
    }
    template <FloatingElement Addend, FloatingElement Sum>
    static void accumulate(const Stream& stream, std::span<const Addend> addend, std::span<Sum> total,
                           SourceLocation where = SourceLocation::current()) {
        require_sizes("accumulate", addend.size(), total.size(), where);
        run(stream, engine::Accumulate<Addend, Sum>{addend, total});
    }
    template <engine::TensorCopy Way, Element T>
    static void copy_tensors(const Stream& stream, std::span<const engine::TensorPiece<T>> table, std::span<T> flat) {
        run(stream, engine::CopyTensors<T, Way>{table, flat});
    }

    /// Copies from host memory to the engine's memory; copy_out copies back.
    /// @pre both spans have the same size
    template <class T>
    static void copy_in(const Stream& stream, std::span<const T> from, std::span<T> to,
                        SourceLocation where = SourceLocation::current()) {
        copy_out(stream, from, to, where);
    }
    template <class T>
    static void copy_out(const Stream& stream, std::span<const T> from, std::span<T> to,
                         SourceLocation where = SourceLocation::current()) {
        static_assert(std::is_trivially_copyable_v<T>);
        copy_bytes(stream, from.data(), to.data(), from.size_bytes(), where);
    }
    /// Copies bytes between the two, either way.
    static void copy_bytes(const Stream& stream, const void* from, void* to, std::size_t bytes,
                           SourceLocation where = SourceLocation::current()) {
        if (stream.on_device()) { return stream.copy(from, to, bytes, where); }
        stream.synchronize();
        if (bytes > 0) { std::memcpy(to, from, bytes); }
    }

    template <class Work>
    static void run_once(const Stream& stream, const Work& work) {
        run(stream, engine::RunOnce<Work>{work});
    }
    template <class Work>
    static void for_each_index(const Stream& stream, std::uint64_t n, const Work& work) {
        run(stream, engine::ForEachIndex<Work>{n, work});
    }
    template <class First, class Work>
    static void run_first(const Stream& stream, const First& first, std::uint64_t n, const Work& work) {
        if (stream.on_device()) {
            return shardkit::detail::give_to_device(stream, engine::RunFirst<First, Work>{first, n, work});
        }
        run_once(stream, first);
        if constexpr (std::invocable<const Work&>) {
            run_once(stream, work);
        } else {
            for_each_index(stream, n, work);
        }
    }
    template <FloatingElement T>
    static void norm_partial(const Stream& stream, std::span<const engine::NormPiece<T>> pieces, IndexRange positions,
                             const double* scale, double* into) {
        run(stream, engine::NormPartial<T>{pieces, positions, scale, into});
    }

  private:
    static void require_sizes(std::string_view kernel, std::size_t from, std::size_t to, SourceLocation where) {
        require_argument(from == to, where, "AnyKernels::", kernel, ": a span of ", to, " elements for one of ", from,
                         ", expected as many");
    }
    template <class Kernel>
    static void run(const Stream& stream, const Kernel& kernel) {
        if (stream.on_device()) { return shardkit::detail::give_to_device(stream, kernel); }
        stream.submit(
            [kernel] { kernel.template on<shardkit::detail::HostKernels>(shardkit::detail::InlineStream{}); });
    }
};

}  // namespace shardkit::host
