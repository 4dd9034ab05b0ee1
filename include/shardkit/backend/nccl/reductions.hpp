// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/call.hpp>
#include <shardkit/backend/nccl/collectives.hpp>
#include <shardkit/backend/nccl/combined.hpp>
#include <shardkit/backend/nccl/group_guard.hpp>
#include <shardkit/backend/nccl/said_of_call.hpp>
#include <shardkit/backend/nccl/staged_pieces.hpp>
#include <shardkit/backend/nccl/world.hpp>
#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/layout/index_range.hpp>

namespace shardkit::nccl::detail {

/// Sums with NCCL's own reductions, in the order that NCCL chooses. It differs between an all-reduce and a
/// reduce-scatter: the bits are not those of another engine or policy. Addends whose type is not the arithmetic of
/// the sum, such as 16-bit ones, are widened into staging memory piece by piece and sent at that width, as NCCL would
/// round to 16 bits at every addition. NCCL's average is never used. Maxima and minima of floating-point elements are
/// collected in staging memory and compared there, with one thread for each element: correct for NaN, and meant for
/// few elements.
/// Where NCCL adds 16-bit elements as Sums::by_nccl asks, they travel as they are, and its sums of 16 bits are
/// widened behind it. A tree_sum, and what Options::sums says, are exchanges: the elements travel as they are, and
/// one kernel adds those of all ranks along the tree or in rank order, so that the bits are those of the host's
/// engines. Each function returns the bytes between this rank and its peers, those of NCCL's ring or of the exchange.
template <class Kernels>
struct Reductions {
    /// Whether the types can be reduced: floating-point types into floating-point types, others into their own.
    template <class In, class Out>
    static constexpr bool possible = (FloatingElement<In> && FloatingElement<Out>) || std::is_same_v<In, Out>;
    /// Says whether a reduction over several ranks is one call of NCCL's, with no staging memory.
    template <class In, class Out>
    static constexpr bool is_direct(ReduceOp op) noexcept {
        return same<In, Out> && !(FloatingElement<In> && op != ReduceOp::sum);
    }

    template <class In, class Out>
    static std::size_t reduce_scatter(const Call& call, const gpu::TimelineRef& stream, ReduceOp op, const In* full,
                                      std::size_t k, Out* shard) {
        const std::size_t ranks = call.group.size;
        if (ranks == 1) {
            copy(call, stream, full, k, shard);
        } else if (FloatingElement<In> && (op != ReduceOp::sum || exchanges(call, ranks * k * sizeof(In)))) {
            if constexpr (FloatingElement<In>) {
                exchange(stream, Exchange<In, Out>{call, op, full, ranks * k, k, shard});
            }
            return (ranks - 1) * k * sizeof(In);
        } else if (stays_narrow<In, Out>(call, op, full, ranks * k) && fits<In, Out>(call, stream, k)) {
            if constexpr (narrows<In, Out>) { scatter_narrow(call, stream, full, k, shard); }
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
        } else if (FloatingElement<In> && (op != ReduceOp::sum || exchanges(call, count * sizeof(In)))) {
            if constexpr (FloatingElement<In>) {
                if (shardkit::detail::adds(op)) {
                    sum_by_exchange(call, stream, op, input, count, output);
                    return shardkit::detail::part_from_peers(count * (sizeof(In) + sizeof(Out)), ranks);
                }
                gather_and_combine(call, stream, op, input, count, output);
            }
            return (ranks - 1) * count * sizeof(In);
        } else if (stays_narrow<In, Out>(call, op, input, count)) {
            if constexpr (narrows<In, Out>) { reduce_narrow(call, stream, input, count, output); }
            return 2 * shardkit::detail::part_from_peers(count * sizeof(In), ranks);
        } else if constexpr (same<In, Out>) {
            if (count > 0) { reduce(call, stream, op, input, output, count); }
        } else {
            StagedPieces<Arithmetic<Out>>(call, stream, 1).summed(count, WholeSum<In, Out>{call, input, output});
        }
        return 2 * shardkit::detail::part_from_peers(count * sizeof(Arithmetic<Out>), ranks);
    }

  private:
    /// Whether NCCL can reduce directly from the input into the output, without conversion or widening.
    template <class In, class Out>
    static constexpr bool same = (std::is_same_v<In, Out> && std::is_same_v<Out, Arithmetic<Out>>);

    /// Returns whether a sum of that many bytes of addends on each rank is an exchange.
    static bool exchanges(const Call& call, std::size_t addends) {
        return addends >= call.world.options().sums.exchange_from();
    }

    /// Whether sums of 16 bits that NCCL makes out of such addends become the result without a second rounding.
    template <class In, class Out>
    static constexpr bool narrows = FloatingElement<In> && sizeof(In) == 2 &&
                                    (std::is_same_v<In, Out> || std::is_same_v<Out, Arithmetic<Out>>);
    /// Returns whether NCCL adds these addends as they are. It needs them in its windows, and all ranks give the
    /// same.
    template <class In, class Out>
    static bool stays_narrow(const Call& call, ReduceOp op, const In* addends, std::size_t count) {
        return narrows<In, Out> && op == ReduceOp::sum && call.group.sums != nullptr &&
               call.world.in_chunks(addends, count * sizeof(In));
    }
    /// Returns whether the sums of k elements, if they are to be widened, fit in the staging memory at once: rows of
    /// addends would lie apart otherwise.
    template <class In, class Out>
    static bool fits(const Call& call, const gpu::TimelineRef& stream, std::size_t k) {
        return std::is_same_v<In, Out> || k * sizeof(In) <= call.world.staging(stream).size();
    }
    template <class In, class Out>
    static void scatter_narrow(const Call& call, const gpu::TimelineRef& stream, const In* full, std::size_t k,
                               Out* shard) {
        if (k == 0) { return; }
        const Call narrow = over_sums(call);
        const auto add = [&](In* sums) {
            call.world.complete(narrow, "ncclReduceScatterConfig", [&](ncclComm_t comm) {
                return detail::reduce_scatter(said(narrow, call.group.size * k * sizeof(In)), full, sums, k,
                                              datatype<In>(), ncclSum, comm, stream.native());
            });
        };
        if constexpr (std::is_same_v<In, Out>) {
            add(shard);
        } else {
            In* const sums = reinterpret_cast<In*>(call.world.staging(stream).data());
            add(sums);
            convert(stream, sums, shard, k);
        }
    }
    template <class In, class Out>
    static void reduce_narrow(const Call& call, const gpu::TimelineRef& stream, const In* input, std::size_t count,
                              Out* output) {
        const Call narrow = over_sums(call);
        if constexpr (std::is_same_v<In, Out>) {
            if (call.world.in_chunks(output, count * sizeof(Out))) {
                if (count > 0) { NarrowSum<In, Out>{narrow, input, output}.add(stream, output, 0, count); }
                return;
            }
        }
        StagedPieces<In>(narrow, stream, 1).summed(count, NarrowSum<In, Out>{narrow, input, output});
    }
    /// Returns the call over the communicator on which NCCL adds 16-bit elements.
    static Call over_sums(const Call& call) noexcept {
        return {call.world, *call.group.sums, call.axes, call.verb, call.where, call.number};
    }
    static SaidOfCall said(const Call& narrow, std::size_t bytes) {
        SaidOfCall said = said_of(narrow, bytes);
        said.symmetric = true;
        return said;
    }

    /// Copies or converts: a reduction over one rank.
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
        /// Returns where the sums go: into the shard, or in place if they are narrowed afterwards.
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

    /// Sums all addends into the whole output likewise, by NCCL in 16 bits: there is nothing to widen before.
    template <class In, class Out>
    struct NarrowSum {
        const Call& call;
        const In* input;
        Out* output;

        void widen(const gpu::TimelineRef& /*stream*/, In* /*staging*/, std::size_t /*at*/,
                   std::size_t /*size*/) const {}
        void add(const gpu::TimelineRef& stream, In* staging, std::size_t at, std::size_t size) const {
            call.world.complete(call, "ncclAllReduceConfig", [&](ncclComm_t comm) {
                return detail::all_reduce(said(call, size * sizeof(In)), input + at, staging, size, datatype<In>(),
                                          ncclSum, comm, stream.native());
            });
        }
        void narrow(const gpu::TimelineRef& stream, In* staging, std::size_t at, std::size_t size) const {
            copy(call, stream, staging, size, output + at);
        }
    };

    /// Sends each rank its part of this rank's `count` elements, and combines what this rank receives. The parts are
    /// of `each` elements, as far as there are some: for StagedPieces::summed, as a sum with nothing to widen.
    template <class In, class Out>
    struct Exchange {
        const Call& call;
        ReduceOp op;
        const In* input;
        std::size_t count;
        std::size_t each;
        Out* output;  ///< of this rank's part

        /// Returns the part of rank q, from `at` on, of at most `size` elements.
        IndexRange part(std::size_t q, std::size_t at, std::size_t size) const {
            const std::size_t begin = std::min(count, q * each + at);
            return {begin, std::min(count, begin + size)};
        }
        void widen(const gpu::TimelineRef& /*stream*/, In* /*staging*/, std::size_t /*at*/,
                   std::size_t /*size*/) const {}
        void add(const gpu::TimelineRef& stream, In* staging, std::size_t at, std::size_t size) const {
            const std::size_t own = part(call.group.rank, at, size).size();
            with_peers(
                call, stream,
                [&](std::size_t q) {
                    const IndexRange sent = part(q, at, size);
                    return std::span(input + sent.begin, sent.size());
                },
                [&](std::size_t q) { return std::span(staging + q * row_stride(own), own); });
        }
        void narrow(const gpu::TimelineRef& stream, In* staging, std::size_t at, std::size_t size) const {
            const std::size_t own = part(call.group.rank, at, size).size();
            if (own == 0) { return; }
            const RankRows<In, Out> rows{staging, call.group.size, own, output + at};
            const auto add = [&](const auto& added) { Kernels::for_each_index(stream, rows.indices(), added); };
            if (op == ReduceOp::sum) {
                add(AddedInOrder<In, Out>{rows});
            } else if (op == ReduceOp::tree_sum && rows.ranks <= AddedAlongTree<In, Out>::most) {
                add(AddedAlongTree<In, Out>{{rows}});
            } else if (op == ReduceOp::tree_sum) {
                add(AddedByEights<In, Out>{{rows}});
            } else {
                Kernels::for_each_index(
                    stream, own, Extremes<In, Out>{op, staging, call.group.size, row_stride(own), output + at});
            }
        }
    };
    template <class In, class Out>
    static void exchange(const gpu::TimelineRef& stream, const Exchange<In, Out>& sum) {
        StagedPieces<In>(sum.call, stream, sum.call.group.size).summed(sum.each, sum, row_stride(sum.each));
    }

    template <class In, class Out>
    static void gather_and_combine(const Call& call, const gpu::TimelineRef& stream, ReduceOp op, const In* input,
                                   std::size_t count, Out* output) {
        const std::size_t ranks = call.group.size;
        StagedPieces<In>(call, stream, ranks).one_after_the_other(count, [&](In* staging, auto at, auto size) {
            call.world.complete(call, "ncclAllGather", [&](ncclComm_t comm) {
                return all_gather(said_of(call, size * sizeof(In)), input + at, staging, size, datatype<In>(), comm,
                                  stream.native());
            });
            Kernels::for_each_index(stream, size, Extremes<In, Out>{op, staging, ranks, size, output + at});
        });
    }

    /// Adds one part on each rank and gathers the sums: the bytes of a reduce-scatter of In and of an all-gather of
    /// Out.
    template <class In, class Out>
    static void sum_by_exchange(const Call& call, const gpu::TimelineRef& stream, ReduceOp op, const In* input,
                                std::size_t count, Out* output) {
        if (count == 0) { return; }
        const std::size_t ranks = call.group.size;
        Exchange<In, Out> sum{call, op, input, count, row_stride((count + ranks - 1) / ranks), output};
        const auto part = [&](std::size_t q) {
            const IndexRange range = sum.part(q, 0, sum.each);
            return std::span(output + range.begin, range.size());
        };
        const std::span<Out> own = part(call.group.rank);
        sum.output = own.data();
        exchange(stream, sum);
        const auto others = [&](std::size_t q, std::span<Out> span) {
            return q == call.group.rank ? span.first(0) : span;
        };
        with_peers(
            call, stream, [&](std::size_t q) { return others(q, own); },
            [&](std::size_t q) { return others(q, part(q)); });
    }

    template <class T>
    static void scatter(const Call& call, const gpu::TimelineRef& stream, ReduceOp op, const T* from, T* to,
                        std::size_t k) {
        call.world.complete(call, "ncclReduceScatter", [&](ncclComm_t comm) {
            return detail::reduce_scatter(said_of(call, call.group.size * k * sizeof(T)), from, to, k, datatype<T>(),
                                          native(op), comm, stream.native());
        });
    }
    template <class T>
    static void reduce(const Call& call, const gpu::TimelineRef& stream, ReduceOp op, const T* from, T* to,
                       std::size_t count) {
        call.world.complete(call, "ncclAllReduce", [&](ncclComm_t comm) {
            return detail::all_reduce(said_of(call, count * sizeof(T)), from, to, count, datatype<T>(), native(op),
                                      comm, stream.native());
        });
    }
    template <class From, class To>
    static void convert(const gpu::TimelineRef& stream, const From* from, To* to, std::size_t count) {
        Kernels::template convert<From, To>(stream, std::span<const From>(from, count), std::span<To>(to, count));
    }
};

}  // namespace shardkit::nccl::detail
