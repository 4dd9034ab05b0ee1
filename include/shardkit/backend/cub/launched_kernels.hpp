// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <shardkit/backend/cub/batch.hpp>
#include <shardkit/backend/cub/combine.hpp>
#include <shardkit/backend/cub/elementwise.hpp>
#include <shardkit/backend/cub/launch.hpp>
#include <shardkit/backend/cub/span_walk.hpp>
#include <shardkit/backend/cub/tensors.hpp>
#include <shardkit/backend/cub/update.hpp>
#include <shardkit/backend/host/device_kernels.hpp>
#include <shardkit/backend/host/tensor_table.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/rank/launch_batch.hpp>

namespace shardkit::gpu::detail {

/// The kernels that are one launch each. Launch{stream}(count, work, kernel) runs work(i) for each i in [0, count),
/// in any order: DeviceLaunch, or a test's loop.
template <class Launch>
struct LaunchedKernels {
    using Stream = typename Launch::Stream;

    /// Sets every element to `value`.
    template <Element T>
    static void fill(const Stream& stream, std::span<T> to, std::type_identity_t<T> value) {
        using Pass = FillPass<T>;
        const Pass pass{to.data(), value, tile<Pass::lanes, Pass::vectors>(to.size(), to.data())};
        Launch{stream}(pass.tiling.indices(), pass, "fill");
    }
    /// Writes to[i] = from[i], rounded once.
    /// @post to[i] is from[i] rounded to nearest, ties to even (from fp64 to a 16-bit type through fp32)
    /// @pre the spans do not overlap
    template <FloatingElement From, FloatingElement To>
    static void convert(const Stream& stream, std::span<const From> from, std::span<To> to) {
        using Pass = ConvertPass<From, To>;
        const Pass pass{from.data(), to.data(), tile<Pass::lanes, Pass::vectors>(to.size(), from.data(), to.data())};
        Launch{stream}(pass.tiling.indices(), pass, "convert");
    }
    /// Packs rows of `columns` elements that lie `stride` apart: to[q * columns + j] = from[q * stride + j], rounded
    /// as by `convert`.
    /// @pre columns > 0, to.size() is a multiple of it, and fewer than 2^32 chunks of 2 KiB; the memories do not
    ///      overlap
    template <FloatingElement From, FloatingElement To>
    static void convert_rows(const Stream& stream, const From* from, std::size_t stride, std::span<To> to,
                             std::size_t columns) {
        using Pass = ConvertRowsPass<From, To>;
        constexpr std::uint64_t chunk = Pass::RowTiling::chunk_elements;
        // As many chunks as a row may need that does not begin at the start of a pack.
        const std::uint64_t chunks = (columns + Pass::lanes - 1 + chunk - 1) / chunk;
        Launch{stream}(to.size() / columns * chunks * warp,
                       Pass{from, stride, to.data(), columns, static_cast<std::uint32_t>(chunks)}, "convert_rows");
    }
    /// Adds total[i] += addend[i].
    /// @post total[i] is the old total[i] + addend[i], added in Arithmetic<Sum> and rounded once
    template <FloatingElement Addend, FloatingElement Sum>
    static void accumulate(const Stream& stream, std::span<const Addend> addend, std::span<Sum> total) {
        using Pass = AccumulatePass<Addend, Sum>;
        const Pass pass{addend.data(), total.data(),
                        tile<Pass::lanes, Pass::vectors>(total.size(), addend.data(), total.data())};
        Launch{stream}(pass.tiling.indices(), pass, "accumulate");
    }
    /// Runs work() once.
    template <class Work>
    static void run_once(const Stream& stream, const Work& work) {
        Launch{stream}(1, RunOnce<Work>{work}, "run_once");
    }
    /// Runs work(i) for every i below n, in any order.
    template <class Work>
    static void for_each_index(const Stream& stream, std::uint64_t n, const Work& work) {
        Launch{stream}(n, work, "for_each_index");
    }
    /// Combines the elements of all ranks, whose rows one has received: see engine::ReductionStep.
    template <FloatingElement In, FloatingElement Out>
    static void combine(const Stream& stream, const engine::ReductionStep& step) {
        combine_rows<In, Out>(
            step, [&](std::uint64_t indices, const auto& kernel) { for_each_index(stream, indices, kernel); });
    }
    /// Makes one step of an optimizer over the elements in `ranges`. Element i of a range is updated by
    /// updates[range.update]. Does nothing if *skip is not 0. Elements outside of all ranges are not touched.
    /// @pre  ranges are sorted, disjoint and inside the spans
    template <class Master, class Gather, class Gradient, std::size_t StateCount, class Storage,
              rules::UpdateOf<Arithmetic<Master>, StateCount> Update>
    static void update(const Stream& stream, std::span<const rules::UpdateRange> ranges, const Update* updates,
                       const std::uint32_t* skip,
                       const rules::UpdateSpans<Master, Gather, Gradient, StateCount, Storage>& spans) {
        const auto pass = update_pass(ranges, updates, skip, spans);
        Launch{stream}(pass.tiling.indices(), pass, "update");
    }
    /// Makes an entry for update_batch that does what `update` does with the same arguments.
    template <class Master, class Gather, class Gradient, std::size_t StateCount, class Storage,
              rules::UpdateOf<Arithmetic<Master>, StateCount> Update>
    static auto update_entry(std::span<const rules::UpdateRange> ranges, const Update* updates,
                             const std::uint32_t* skip,
                             const rules::UpdateSpans<Master, Gather, Gradient, StateCount, Storage>& spans) {
        auto pass = update_pass(ranges, updates, skip, spans);
        return BatchEntry<decltype(pass)>{pass, pass.tiling.indices(), pass.tiling.indices()};
    }
    /// Runs many updates in one launch. No two of them may have the same elements.
    template <class Pass>
    static void update_batch(const Stream& stream, const engine::LaunchBatch<BatchEntry<Pass>>& batch) {
        const BatchPass<Pass> all{batch.entries.data(), static_cast<std::uint32_t>(batch.entries.size()),
                                  batch.begin};
        Launch{stream}(batch.end - batch.begin, all, "update_batch");
    }
    /// Copies every tensor of `table` to its place in `flat`, or from there; padding is not touched.
    /// Cost:  one launch for all tensors, whatever their number.
    /// @pre   `table` is from tensor_table, in the engine's memory; no tensor overlaps `flat` or another one
    template <engine::TensorCopy Way, Element T>
    static void copy_tensors(const Stream& stream, std::span<const engine::TensorPiece<T>> table, std::span<T> flat) {
        using Pass = PackPass<T, Way>;
        if (table.empty()) { return; }
        const Pass pass{flat.data(), table.data(), table.size(),
                        tile<Pass::lanes, Pass::vectors>(flat.size(), flat.data())};
        Launch{stream}(pass.tiling.indices(), pass, "copy_tensors");
    }
};

}  // namespace shardkit::gpu::detail
