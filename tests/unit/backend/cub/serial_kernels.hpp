// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include <shardkit/backend/cub/batch.hpp>
#include <shardkit/backend/cub/block_int8.hpp>
#include <shardkit/backend/cub/elementwise.hpp>
#include <shardkit/backend/cub/launch.hpp>
#include <shardkit/backend/cub/norm.hpp>
#include <shardkit/backend/cub/tensors.hpp>
#include <shardkit/backend/cub/update.hpp>

#include "machine.hpp"

namespace shardkit::test {

/// What gpu::Kernels launches, run by a loop on the host's memory: the same passes, cut into the same vectors.
struct SerialKernels {
    /// Indices in descending order: an order that a device is allowed to run them in, and a loop would not.
    struct Stream {
        template <class Work>
        void operator()(std::uint64_t count, const Work& work, std::string_view /*kernel*/) const {
            for (std::uint64_t i = count; i > 0; --i) { work(i - 1); }
        }
        void synchronize() const {}
    };

    template <Element T>
    static void fill(Stream launch, std::span<T> to, std::type_identity_t<T> value) {
        gpu::detail::fill(launch, to, value);
    }
    template <FloatingElement From, FloatingElement To>
    static void convert(Stream launch, std::span<const From> from, std::span<To> to,
                        SourceLocation where = SourceLocation::current()) {
        gpu::detail::convert(launch, from, to, where);
    }
    template <FloatingElement From, FloatingElement To>
    static void convert_rows(Stream launch, const From* from, std::size_t stride, std::span<To> to,
                             std::size_t columns) {
        gpu::detail::convert_rows(launch, from, stride, to, columns);
    }
    template <FloatingElement Addend, FloatingElement Sum>
    static void accumulate(Stream launch, std::span<const Addend> addend, std::span<Sum> total,
                           SourceLocation where = SourceLocation::current()) {
        gpu::detail::accumulate(launch, addend, total, where);
    }
    template <FloatingElement T>
    static void scale(Stream launch, std::span<T> to, const double* factor) {
        gpu::detail::scale(launch, to, factor);
    }
    template <class T>
    static void copy_in(Stream /*launch*/, std::span<const T> from, std::span<T> to) {
        std::copy(from.begin(), from.end(), to.begin());
    }
    template <class T>
    static void copy_out(Stream /*launch*/, std::span<const T> from, std::span<T> to) {
        std::copy(from.begin(), from.end(), to.begin());
    }
    template <class Work>
    static void run_once(Stream launch, const Work& work) {
        launch(1, gpu::detail::RunOnce<Work>{work}, "run_once");
    }
    template <FloatingElement T>
    static void norm_partial(Stream /*launch*/, std::span<const NormPiece<T>> pieces, IndexRange positions,
                             const double* scale, double* into) {
        if (pieces.empty()) { return; }
        const gpu::detail::NormPass<T> pass = gpu::detail::norm_pass(pieces, positions, scale);
        shardkit::detail::NormPartial sum;
        // Three warps, each thread with several indices of a pass that is large.
        constexpr std::uint64_t threads = 3 * gpu::detail::warp;
        for (std::uint64_t thread = 0; thread < threads; ++thread) {
            sum = gpu::detail::AddNormPartials{}(sum, pass(thread, threads));
        }
        gpu::detail::AddToNorm{into}(sum);
    }
    template <class Update, class Spans>
    static void update(Stream launch, std::span<const UpdateRange> ranges, const Update* updates,
                       const std::uint32_t* skip, const Spans& spans,
                       SourceLocation where = SourceLocation::current()) {
        gpu::detail::update(launch, ranges, updates, skip, spans, where);
    }
    template <class Update, class Spans>
    static auto update_entry(std::span<const UpdateRange> ranges, const Update* updates, const std::uint32_t* skip,
                             const Spans& spans) {
        const auto pass = gpu::detail::update_pass(ranges, updates, skip, spans);
        return gpu::detail::batch_entry(pass, pass.tiling.indices());
    }
    template <class Entry>
    static void update_batch(Stream launch, const LaunchBatch<Entry>& batch) {
        gpu::detail::run_batch(launch, batch, "update_batch");
    }
    template <Element T>
    static void pack(Stream launch, std::span<const TensorPiece<T>> table, std::span<T> flat) {
        gpu::detail::copy_tensors<gpu::detail::PackDirection::pack>(launch, table, flat);
    }
    template <Element T>
    static void unpack(Stream launch, std::span<const TensorPiece<T>> table, std::span<T> flat) {
        gpu::detail::copy_tensors<gpu::detail::PackDirection::unpack>(launch, table, flat);
    }
    template <std::size_t Block, FloatingElement T>
    static void quantize(Stream launch, std::span<const T> from, std::span<std::int8_t> codes,
                         std::span<float> scales, SourceLocation where = SourceLocation::current()) {
        gpu::detail::quantize<Block>(launch, from, codes, scales, where);
    }
    template <std::size_t Block, FloatingElement T>
    static void dequantize(Stream launch, std::span<const std::int8_t> codes, std::span<const float> scales,
                           std::span<T> to, SourceLocation where = SourceLocation::current()) {
        gpu::detail::dequantize<Block>(launch, codes, scales, to, where);
    }
};

/// A machine on the host's memory.
using SerialMachine = HostMachine<SerialKernels>;

}  // namespace shardkit::test
