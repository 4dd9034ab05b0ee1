// SPDX-License-Identifier: Apache-2.0
#pragma once

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
#include <shardkit/backend/nccl/staged_pieces.hpp>
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
    /// Says which types can be reduced: floating ones into floating ones, others into their own.
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
            StagedPieces<Arithmetic<Out>>(call, stream, ranks).summed(k, ScatteredSum<In, Out>{call, full, k, shard});
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
            StagedPieces<Arithmetic<Out>>(call, stream, 1).summed(count, WholeSum<In, Out>{call, input, output});
        }
        return 2 * shardkit::detail::part_from_peers(count * sizeof(Arithmetic<Out>), ranks);
    }

  private:
    /// Holds where there is no conversion and no widening: NCCL reduces from the input into the output.
    template <class In, class Out>
    static constexpr bool same = (std::is_same_v<In, Out> && std::is_same_v<Out, Arithmetic<Out>>);

    /// Does what a reduction over one rank is.
    template <class In, class Out>
    static void copy(const Call& call, const gpu::TimelineRef& stream, const In* from, std::size_t count, Out* to) {
        if constexpr (std::is_same_v<In, Out>) {
            copy_alone(call, from, count, to, stream);
        } else if (count > 0) {
            convert(stream, from, to, count);
        }
    }

    /// Sums each rank's row of k addends into this rank's shard.
    template <class In, class Out>
    struct ScatteredSum {
        using A = Arithmetic<Out>;
        const Call& call;
        const In* full;
        std::size_t k;
        Out* shard;

        void widen(const gpu::TimelineRef& stream, A* staging, std::size_t at, std::size_t size) const {
            const std::span<A> to(staging, call.group.size * size);
            if (size == k) {  // packed already
                Kernels::template convert<In, A>(stream, std::span<const In>(full, to.size()), to);
            } else {
                Kernels::template convert_rows<In, A>(stream, full + at, k, to, size);
            }
        }
        void add(const gpu::TimelineRef& stream, A* staging, std::size_t at, std::size_t size) const {
            scatter(call, stream, ReduceOp::sum, staging, sums(staging, at, size), size);
        }
        void narrow(const gpu::TimelineRef& stream, A* staging, std::size_t at, std::size_t size) const {
            if constexpr (!std::is_same_v<Out, A>) { convert(stream, sums(staging, at, size), shard + at, size); }
        }

      private:
        /// Returns where the sums go: into the shard, or in place where they are narrowed then.
        A* sums(A* staging, std::size_t at, std::size_t size) const {
            if constexpr (std::is_same_v<Out, A>) {
                return shard + at;
            } else {
                return staging + call.group.rank * size;
            }
        }
    };

    /// Sums all addends into the whole output.
    template <class In, class Out>
    struct WholeSum {
        using A = Arithmetic<Out>;
        const Call& call;
        const In* input;
        Out* output;

        void widen(const gpu::TimelineRef& stream, A* staging, std::size_t at, std::size_t size) const {
            convert(stream, input + at, staging, size);
        }
        void add(const gpu::TimelineRef& stream, A* staging, std::size_t at, std::size_t size) const {
            if constexpr (std::is_same_v<Out, A>) {
                reduce(call, stream, ReduceOp::sum, staging, output + at, size);
            } else {
                reduce(call, stream, ReduceOp::sum, staging, staging, size);
            }
        }
        void narrow(const gpu::TimelineRef& stream, A* staging, std::size_t at, std::size_t size) const {
            if constexpr (!std::is_same_v<Out, A>) { convert(stream, staging, output + at, size); }
        }
    };

    template <class In, class Out>
    static void scatter_extremes(const Call& call, const gpu::TimelineRef& stream, ReduceOp op, const In* full,
                                 std::size_t k, Out* shard) {
        const Group& group = call.group;
        StagedPieces<In>(call, stream, group.size).one_after_the_other(k, [&](In* staging, auto at, auto size) {
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
        const std::size_t ranks = call.group.size;
        StagedPieces<In>(call, stream, ranks).one_after_the_other(count, [&](In* staging, auto at, auto size) {
            call.world.complete(
                call, "ncclAllGather",
                ncclAllGather(input + at, staging, size, datatype<In>(), call.group.comm, stream.native()));
            Kernels::for_each_index(stream, size, Extreme<In, Out>{op, staging, ranks, size, output + at});
        });
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
