// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <shardkit/backend/host/device_kernels.hpp>
#include <shardkit/backend/host/enqueued_kernels.hpp>
#include <shardkit/backend/host/tensor_table.hpp>
#include <shardkit/comm/any_stream.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/kernels/norm_sum.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/layout/index_range.hpp>

namespace shardkit::host {

/// The Kernels of an engine: EnqueuedKernels in the order of a stream of the host, and a launch on a stream of a
/// device.
/// @throws UsageError when no file of the program can launch a kernel that a device's stream is given
struct AnyKernels : EnqueuedKernels<AnyStream> {
    using OnHost = EnqueuedKernels<AnyStream>;

    static std::size_t row_workers_on(const AnyStream& stream) noexcept {
        return stream.on_device() ? shardkit::detail::device_row_workers : 1;
    }

    template <Element T>
    static void fill(const AnyStream& stream, std::span<T> to, std::type_identity_t<T> value) {
        stream.on_device() ? give(stream, engine::Fill<T>{to, value}) : OnHost::fill(stream, to, value);
    }
    template <FloatingElement From, FloatingElement To>
    static void convert(const AnyStream& stream, std::span<const From> from, std::span<To> to,
                        SourceLocation where = SourceLocation::current()) {
        stream.on_device() ? give(stream, engine::Convert<From, To>{from, to, where})
                           : OnHost::convert(stream, from, to, where);
    }
    /// Packs rows of a device's memory; see gpu::Kernels.
    template <FloatingElement From, FloatingElement To>
    static void convert_rows(const AnyStream& stream, const From* from, std::size_t stride, std::span<To> to,
                             std::size_t columns) {
        give(stream, engine::ConvertRows<From, To>{from, stride, to, columns});
    }
    template <FloatingElement Addend, FloatingElement Sum>
    static void accumulate(const AnyStream& stream, std::span<const Addend> addend, std::span<Sum> total,
                           SourceLocation where = SourceLocation::current()) {
        stream.on_device() ? give(stream, engine::Accumulate<Addend, Sum>{addend, total, where})
                           : OnHost::accumulate(stream, addend, total, where);
    }
    template <FloatingElement Addend, FloatingElement Sum>
    requires(std::same_as<Sum, Arithmetic<Sum>>) static void accumulate_pair(
        const AnyStream& stream, std::span<const Addend> addend, std::span<const Sum> other, std::span<Sum> total,
        SourceLocation where = SourceLocation::current()) {
        stream.on_device() ? give(stream, engine::AccumulatePair<Addend, Sum>{addend, other, total, where})
                           : OnHost::accumulate_pair(stream, addend, other, total, where);
    }
    template <Element T>
    static void pack(const AnyStream& stream, std::span<const engine::TensorPiece<T>> table, std::span<T> flat) {
        stream.on_device() ? give(stream, engine::Pack<T>{table, flat}) : OnHost::pack(stream, table, flat);
    }
    template <Element T>
    static void unpack(const AnyStream& stream, std::span<const engine::TensorPiece<T>> table, std::span<T> flat) {
        stream.on_device() ? give(stream, engine::Unpack<T>{table, flat}) : OnHost::unpack(stream, table, flat);
    }

    template <class T>
    static void copy_in(const AnyStream& stream, std::span<const T> from, std::span<T> to,
                        SourceLocation where = SourceLocation::current()) {
        copy_out(stream, from, to, where);
    }
    template <class T>
    static void copy_out(const AnyStream& stream, std::span<const T> from, std::span<T> to,
                         SourceLocation where = SourceLocation::current()) {
        static_assert(std::is_trivially_copyable_v<T>);
        stream.on_device() ? stream.copy(from.data(), to.data(), from.size_bytes(), where)
                           : OnHost::copy_out(stream, from, to);
    }

    template <class Work>
    static void run_once(const AnyStream& stream, const Work& work) {
        stream.on_device() ? give(stream, engine::RunOnce<Work>{work}) : OnHost::run_once(stream, work);
    }
    template <class Work>
    static void for_each_index(const AnyStream& stream, std::uint64_t n, const Work& work) {
        stream.on_device() ? give(stream, engine::ForEachIndex<Work>{n, work})
                           : OnHost::for_each_index(stream, n, work);
    }
    template <class First, class Work>
    static void run_first(const AnyStream& stream, const First& first, std::uint64_t n, const Work& work) {
        if (stream.on_device()) { return give(stream, engine::RunFirst<First, Work>{first, n, work}); }
        OnHost::run_once(stream, first);
        if constexpr (std::invocable<const Work&>) {
            OnHost::run_once(stream, work);
        } else {
            OnHost::for_each_index(stream, n, work);
        }
    }
    template <FloatingElement T>
    static void norm_partial(const AnyStream& stream, std::span<const engine::NormPiece<T>> pieces,
                             IndexRange positions, const double* scale, double* into) {
        stream.on_device() ? give(stream, engine::NormPartial<T>{pieces, positions, scale, into})
                           : OnHost::norm_partial(stream, pieces, positions, scale, into);
    }

    template <class Master, class Gather, class Gradient, std::size_t StateCount, class Storage,
              rules::UpdateOf<Arithmetic<Master>, StateCount> Update>
    static void update(const AnyStream& stream, std::span<const rules::UpdateRange> ranges, const Update* updates,
                       const std::uint32_t* skip,
                       const rules::UpdateSpans<Master, Gather, Gradient, StateCount, Storage>& spans,
                       SourceLocation where = SourceLocation::current()) {
        if (!stream.on_device()) { return OnHost::update(stream, ranges, updates, skip, spans, where); }
        give(stream, engine::Update<Update, rules::UpdateSpans<Master, Gather, Gradient, StateCount, Storage>>{
                         ranges, updates, skip, spans, where});
    }

  private:
    template <class Kernel>
    static void give(const AnyStream& stream, const Kernel& kernel) {
        shardkit::detail::give_to_device(stream, kernel);
    }
};

}  // namespace shardkit::host
