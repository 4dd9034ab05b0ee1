// SPDX-License-Identifier: Apache-2.0
#pragma once

// Kernels call constexpr functions that are not __device__: without the flag, each call is an error of its own.
#if defined(__CUDACC__) && !defined(__CUDACC_RELAXED_CONSTEXPR__)
#error "shardkit needs nvcc's --expt-relaxed-constexpr"
#endif

#include <shardkit/detail/hide_macros.inc>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <shardkit/backend/cub/batch.hpp>
#include <shardkit/backend/cub/block_int8.hpp>
#include <shardkit/backend/cub/copy.hpp>
#include <shardkit/backend/cub/elementwise.hpp>
#include <shardkit/backend/cub/launch.hpp>
#include <shardkit/backend/cub/norm.hpp>
#include <shardkit/backend/cub/tensors.hpp>
#include <shardkit/backend/cub/update.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/memory/tensor_table.hpp>
#include <shardkit/rank/engine.hpp>
#include <shardkit/sharded/norm_table.hpp>

namespace shardkit::gpu {

/// The Kernels of an engine on CUB. Their meaning is that of host::EnqueuedKernels for engines on host memory. This
/// header only declares the kernels; kernels.cuh defines them, for nvcc.
/// Spans and pointers must be memory of the stream's device, aligned as their elements are, of any size.
/// Order:   stream-ordered on `stream`; only copy_in and copy_out wait. Nothing is allocated.
/// Numbers: an element's result is that of the host's functor, which nvcc may contract into fused multiply-adds
///          (-fmad=false: the host's bits). Norms are summed in double.
/// @throws  std::invalid_argument when the sizes of a call's spans disagree; gpu::Error when a launch fails
struct Kernels {
    using Stream = gpu::TimelineRef;
    /// A warp's threads read 32 adjacent columns of a row of logits.
    static constexpr std::size_t row_workers = 32;

    template <Element T>
    static void fill(const Stream& stream, std::span<T> to, std::type_identity_t<T> value) {
        detail::fill(detail::DeviceLaunch(stream), to, value);
    }
    template <FloatingElement From, FloatingElement To>
    static void convert(const Stream& stream, std::span<const From> from, std::span<To> to,
                        SourceLocation where = SourceLocation::current()) {
        detail::convert(detail::DeviceLaunch(stream), from, to, where);
    }
    /// Packs and rounds rows of `columns` elements that lie `stride` apart.
    template <FloatingElement From, FloatingElement To>
    static void convert_rows(const Stream& stream, const From* from, std::size_t stride, std::span<To> to,
                             std::size_t columns) {
        detail::convert_rows(detail::DeviceLaunch(stream), from, stride, to, columns);
    }
    template <FloatingElement Addend, FloatingElement Sum>
    static void accumulate(const Stream& stream, std::span<const Addend> addend, std::span<Sum> total,
                           SourceLocation where = SourceLocation::current()) {
        detail::accumulate(detail::DeviceLaunch(stream), addend, total, where);
    }
    template <FloatingElement Addend, FloatingElement Sum>
    requires(std::same_as<Sum, Arithmetic<Sum>>) static void accumulate_pair(
        const Stream& stream, std::span<const Addend> addend, std::span<const Sum> other, std::span<Sum> total,
        SourceLocation where = SourceLocation::current()) {
        detail::accumulate_pair(detail::DeviceLaunch(stream), addend, other, total, where);
    }
    template <FloatingElement T>
    static void scale(const Stream& stream, std::span<T> to, const double* factor) {
        detail::scale(detail::DeviceLaunch(stream), to, factor);
    }

    /// Copies from host memory. Returns when `from` may be reused.
    template <class T>
    static void copy_in(const Stream& stream, std::span<const T> from, std::span<T> to,
                        SourceLocation where = SourceLocation::current()) {
        detail::copy(stream, from, to, where);
    }
    /// Copies to host memory. Returns when `to` holds the elements.
    template <class T>
    static void copy_out(const Stream& stream, std::span<const T> from, std::span<T> to,
                         SourceLocation where = SourceLocation::current()) {
        detail::copy(stream, from, to, where);
    }

    /// Runs work() once, on the device.
    template <class Work>
    static void run_once(const Stream& stream, const Work& work) {
        detail::DeviceLaunch{stream}(1, detail::RunOnce<Work>{work}, "run_once");
    }

    /// Runs first(copy of first.reads()), then work(i) for every i below n, in one launch.
    template <class First, class Work>
    static void run_first(const Stream& stream, const First& first, std::uint64_t n, const Work& work) {
        detail::DeviceLaunch{stream}.behind(first, n, work, "run_first");
    }

    /// Runs work(i) for every i below n, in any order.
    template <class Work>
    static void for_each_index(const Stream& stream, std::uint64_t n, const Work& work) {
        detail::DeviceLaunch{stream}(n, work, "for_each_index");
    }

    template <FloatingElement T>
    static void norm_partial(const Stream& stream, std::span<const engine::NormPiece<T>> pieces, IndexRange positions,
                             const double* scale, double* into) {
        detail::norm_partial(stream, pieces, positions, scale, into);
    }
    template <class Master, class Gather, class Gradient, std::size_t StateCount, class Storage,
              rules::UpdateOf<Arithmetic<Master>, StateCount> Update>
    static void update(const Stream& stream, std::span<const rules::UpdateRange> ranges, const Update* updates,
                       const std::uint32_t* skip,
                       const rules::UpdateSpans<Master, Gather, Gradient, StateCount, Storage>& spans,
                       SourceLocation where = SourceLocation::current()) {
        detail::update(detail::DeviceLaunch(stream), ranges, updates, skip, spans, where);
    }
    /// Makes an entry for update_batch that does what `update` does with the same arguments.
    template <class Master, class Gather, class Gradient, std::size_t StateCount, class Storage,
              rules::UpdateOf<Arithmetic<Master>, StateCount> Update>
    static auto update_entry(std::span<const rules::UpdateRange> ranges, const Update* updates,
                             const std::uint32_t* skip,
                             const rules::UpdateSpans<Master, Gather, Gradient, StateCount, Storage>& spans) {
        const auto pass = detail::update_pass(ranges, updates, skip, spans);
        return detail::batch_entry(pass);
    }
    /// Runs many updates in one launch. No two of them may have the same elements.
    template <class Pass>
    static void update_batch(const Stream& stream, const engine::LaunchBatch<detail::BatchEntry<Pass>>& batch) {
        detail::run_batch(detail::DeviceLaunch(stream), batch, "update_batch");
    }

    template <Element T>
    static void pack(const Stream& stream, std::span<const engine::TensorPiece<T>> table, std::span<T> flat) {
        detail::copy_tensors<detail::PackDirection::pack>(detail::DeviceLaunch(stream), table, flat);
    }
    template <Element T>
    static void unpack(const Stream& stream, std::span<const engine::TensorPiece<T>> table, std::span<T> flat) {
        detail::copy_tensors<detail::PackDirection::unpack>(detail::DeviceLaunch(stream), table, flat);
    }

    template <std::size_t Block = BlockInt8<>::block, FloatingElement T>
    static void quantize(const Stream& stream, std::span<const T> from, std::span<std::int8_t> codes,
                         std::span<float> scales, SourceLocation where = SourceLocation::current()) {
        detail::quantize<Block>(detail::DeviceLaunch(stream), from, codes, scales, where);
    }
    template <std::size_t Block = BlockInt8<>::block, FloatingElement T>
    static void dequantize(const Stream& stream, std::span<const std::int8_t> codes, std::span<const float> scales,
                           std::span<T> to, SourceLocation where = SourceLocation::current()) {
        detail::dequantize<Block>(detail::DeviceLaunch(stream), codes, scales, to, where);
    }
};

static_assert(engine::StepKernels<shardkit::detail::KernelsOn<Kernels, TimelineRef>>);
static_assert(engine::IndexKernels<shardkit::detail::KernelsOn<Kernels, TimelineRef>>);

}  // namespace shardkit::gpu

#include <shardkit/detail/show_macros.inc>
