// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <shardkit/backend/host/range_updates.hpp>
#include <shardkit/backend/host/tensor_table.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/kernels/norm_sum.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/layout/index_range.hpp>

#include "enqueued_update.hpp"

namespace shardkit::test {

/// The host's kernels in the order of any stream: `stream.submit(work)` decides when and where.
template <class S>
struct EnqueuedKernels {
    using Loops = shardkit::detail::HostKernels;

    template <Element T>
    static void fill(const S& stream, std::span<T> to, std::type_identity_t<T> value) {
        stream.submit([=] { Loops::fill(shardkit::detail::InlineStream{}, to, value); });
    }
    template <FloatingElement From, FloatingElement To>
    static void convert(const S& stream, std::span<const From> from, std::span<To> to) {
        stream.submit([=] { Loops::convert(shardkit::detail::InlineStream{}, from, to); });
    }
    template <FloatingElement Addend, FloatingElement Sum>
    static void accumulate(const S& stream, std::span<const Addend> addend, std::span<Sum> total) {
        stream.submit([=] { Loops::accumulate(shardkit::detail::InlineStream{}, addend, total); });
    }
    template <engine::TensorCopy Way, Element T>
    static void copy_tensors(const S& stream, std::span<const engine::TensorPiece<T>> table, std::span<T> flat) {
        stream.submit([=] { Loops::template copy_tensors<Way>(shardkit::detail::InlineStream{}, table, flat); });
    }

    template <class T>
    static void copy_in(const S& stream, std::span<const T> from, std::span<T> to) {
        copy_out(stream, from, to);
    }
    template <class T>
    static void copy_out(const S& stream, std::span<const T> from, std::span<T> to) {
        stream.synchronize();
        std::copy(from.begin(), from.end(), to.begin());
    }

    template <class Work>
    static void run_once(const S& stream, const Work& work) {
        stream.submit(work);
    }

    template <class Work>
    static void for_each_index(const S& stream, std::uint64_t n, const Work& work) {
        stream.submit([=] { Loops::for_each_index(shardkit::detail::InlineStream{}, n, work); });
    }

    template <FloatingElement T>
    static void norm_partial(const S& stream, std::span<const engine::NormPiece<T>> pieces, IndexRange positions,
                             const double* scale, double* into) {
        stream.submit([=] { Loops::norm_partial(shardkit::detail::InlineStream{}, pieces, positions, scale, into); });
    }
    template <class Master, class Gather, class Gradient, std::size_t StateCount, class Storage,
              rules::UpdateOf<Arithmetic<Master>, StateCount> Update>
    static void update(const S& stream, std::span<const rules::UpdateRange> ranges, const Update* updates,
                       const std::uint32_t* skip,
                       const rules::UpdateSpans<Master, Gather, Gradient, StateCount, Storage>& spans) {
        stream.submit([=] { update_on_host(ranges, updates, skip, spans); });
    }
};

}  // namespace shardkit::test
