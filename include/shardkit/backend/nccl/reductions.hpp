// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>

#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/call.hpp>
#include <shardkit/backend/nccl/copy_alone.hpp>
#include <shardkit/backend/nccl/datatype.hpp>
#include <shardkit/backend/nccl/extreme.hpp>
#include <shardkit/backend/nccl/group_guard.hpp>
#include <shardkit/backend/nccl/world.hpp>
#include <shardkit/comm/cost.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/core/element.hpp>

namespace shardkit::nccl::detail {

/// Sums by NCCL's own reductions, in whatever order NCCL likes, another for an all-reduce than for a reduce-scatter:
/// not the bits of another engine, nor those of another policy. Addends of another type than the sum's arithmetic,
/// 16-bit ones above all, are widened into staging memory piece by piece and travel at that width: NCCL would round
/// to 16 bits at every addition. Never NCCL's average. Maxima and minima of floating elements are collected in
/// staging memory and compared there by one thread of the GPU: right for NaN, and meant for few elements. Each
/// returns the bytes that go between this rank and its peers, those of NCCL's ring.
template <class Kernels>
struct Reductions {
    /// Types that can be reduced: floating ones into floating ones, others into their own.
    template <class In, class Out>
    static constexpr bool possible = (FloatingElement<In> && FloatingElement<Out>) || std::is_same_v<In, Out>;

    template <class In, class Out>
    static std::size_t reduce_scatter(const Call& call, const gpu::TimelineRef& stream, ReduceOp op, const In* full,
                                      std::size_t k, Out* shard) {
        const std::size_t ranks = call.group.size;
        if (ranks == 1) {
            copy(call, stream, full, k, shard);
        } else if (FloatingElement<In> && op != ReduceOp::sum) {
            if constexpr (FloatingElement<In>) { scatter_extremes(call, stream, op, full, k, shard); }
            return (ranks - 1) * k * sizeof(In);
        } else if constexpr (same<In, Out>) {
            if (k > 0) { scatter(call, stream, op, full, shard, k); }
        } else {
            scatter_widened(call, stream, full, k, shard);
        }
        return (ranks - 1) * k * sizeof(Arithmetic<Out>);
    }

    template <class In, class Out>
    static std::size_t all_reduce(const Call& call, const gpu::TimelineRef& stream, ReduceOp op, const In* input,
                                  std::size_t count, Out* output) {
        const std::size_t ranks = call.group.size;
        if (ranks == 1) {
            copy(call, stream, input, count, output);
        } else if (FloatingElement<In> && op != ReduceOp::sum) {
            if constexpr (FloatingElement<In>) { reduce_extremes(call, stream, op, input, count, output); }
            return (ranks - 1) * count * sizeof(In);
        } else if constexpr (same<In, Out>) {
            if (count > 0) { reduce(call, stream, op, input, output, count); }
        } else {
            reduce_widened(call, stream, input, count, output);
        }
        return 2 * shardkit::detail::part_from_peers(count * sizeof(Arithmetic<Out>), ranks);
    }

  private:
    /// No conversion, no widening: NCCL reduces from the input into the output.
    template <class In, class Out>
    static constexpr bool same = (std::is_same_v<In, Out> && std::is_same_v<Out, Arithmetic<Out>>);

    /// What a reduction over one rank is.
    template <class In, class Out>
    static void copy(const Call& call, const gpu::TimelineRef& stream, const In* from, std::size_t count, Out* to) {
        if constexpr (std::is_same_v<In, Out>) {
            copy_alone(call, from, count, to, stream);
        } else if (count > 0) {
            convert(stream, from, to, count);
        }
    }

    template <class In, class Out>
    static void scatter_widened(const Call& call, const gpu::TimelineRef& stream, const In* full, std::size_t k,
                                Out* shard) {
        using A = Arithmetic<Out>;
        const std::size_t ranks = call.group.size;
        const std::size_t rank = call.group.rank;
        A* const staging = staged<A>(call);
        for_each_piece<A>(call, k, [&](std::size_t at, std::size_t size) {
            if (size == k) {  // packed already
                convert(stream, full, staging, ranks * k);
            } else {
                for (std::size_t q = 0; q < ranks; ++q) {
                    convert(stream, full + q * k + at, staging + q * size, size);
                }
            }
            if constexpr (std::is_same_v<Out, A>) {
                scatter(call, stream, ReduceOp::sum, staging, shard + at, size);
            } else {
                A* const sums = staging + rank * size;
                scatter(call, stream, ReduceOp::sum, staging, sums, size);
                convert(stream, sums, shard + at, size);
            }
        });
    }

    template <class In, class Out>
    static void reduce_widened(const Call& call, const gpu::TimelineRef& stream, const In* input, std::size_t count,
                               Out* output) {
        using A = Arithmetic<Out>;
        A* const staging = staged<A>(call);
        const std::size_t most = staging_elements<A>(call);
        for (std::size_t at = 0; at < count; at += most) {
            const std::size_t size = std::min(most, count - at);
            convert(stream, input + at, staging, size);
            if constexpr (std::is_same_v<Out, A>) {
                reduce(call, stream, ReduceOp::sum, staging, output + at, size);
            } else {
                reduce(call, stream, ReduceOp::sum, staging, staging, size);
                convert(stream, staging, output + at, size);
            }
        }
    }

    template <class In, class Out>
    static void scatter_extremes(const Call& call, const gpu::TimelineRef& stream, ReduceOp op, const In* full,
                                 std::size_t k, Out* shard) {
        In* const staging = staged<In>(call);
        const Group& group = call.group;
        for_each_piece<In>(call, k, [&](std::size_t at, std::size_t size) {
            GroupGuard together(call);
            for (std::size_t q = 0; q < group.size; ++q) {
                const int peer = static_cast<int>(q);
                together.add("ncclSend",
                             ncclSend(full + q * k + at, size, datatype<In>(), peer, group.comm, stream.native()));
                together.add("ncclRecv",
                             ncclRecv(staging + q * size, size, datatype<In>(), peer, group.comm, stream.native()));
            }
            together.submit();
            Kernels::for_each_index(stream, size, Extreme<In, Out>{op, staging, group.size, size, shard + at});
        });
    }

    template <class In, class Out>
    static void reduce_extremes(const Call& call, const gpu::TimelineRef& stream, ReduceOp op, const In* input,
                                std::size_t count, Out* output) {
        In* const staging = staged<In>(call);
        for_each_piece<In>(call, count, [&](std::size_t at, std::size_t size) {
            call.world.complete(
                call, "ncclAllGather",
                ncclAllGather(input + at, staging, size, datatype<In>(), call.group.comm, stream.native()));
            Kernels::for_each_index(stream, size, Extreme<In, Out>{op, staging, call.group.size, size, output + at});
        });
    }

    /// f(offset, size) for consecutive pieces of [0, k) of which one per rank fits into the staging memory.
    template <class T, class F>
    static void for_each_piece(const Call& call, std::size_t k, const F& f) {
        const std::size_t most = aligned<T>(staging_elements<T>(call) / call.group.size);
        for (std::size_t at = 0; at < k; at += most) { f(at, std::min(most, k - at)); }
    }
    template <class T>
    static T* staged(const Call& call) noexcept {
        return reinterpret_cast<T*>(call.world.staging().data());
    }
    template <class T>
    static std::size_t staging_elements(const Call& call) noexcept {
        return aligned<T>(call.world.staging().size() / sizeof(T));
    }
    /// Rounded down, so that all pieces begin where NCCL's and the kernels' wide loads can.
    template <class T>
    static constexpr std::size_t aligned(std::size_t count) noexcept {
        constexpr std::size_t bytes = 128;
        return count / (bytes / sizeof(T)) * (bytes / sizeof(T));
    }

    template <class T>
    static void scatter(const Call& call, const gpu::TimelineRef& stream, ReduceOp op, const T* from, T* to,
                        std::size_t k) {
        call.world.complete(
            call, "ncclReduceScatter",
            ncclReduceScatter(from, to, k, datatype<T>(), native(op), call.group.comm, stream.native()));
    }
    template <class T>
    static void reduce(const Call& call, const gpu::TimelineRef& stream, ReduceOp op, const T* from, T* to,
                       std::size_t count) {
        call.world.complete(
            call, "ncclAllReduce",
            ncclAllReduce(from, to, count, datatype<T>(), native(op), call.group.comm, stream.native()));
    }
    template <class From, class To>
    static void convert(const gpu::TimelineRef& stream, const From* from, To* to, std::size_t count) {
        Kernels::template convert<From, To>(stream, std::span<const From>(from, count), std::span<To>(to, count));
    }
};

}  // namespace shardkit::nccl::detail
