// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>

#include <shardkit/backend/host/copy_elements.hpp>
#include <shardkit/backend/host/kernels.hpp>
#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/collective.hpp>
#include <shardkit/backend/mpi/exchange.hpp>
#include <shardkit/backend/mpi/group.hpp>
#include <shardkit/backend/mpi/world.hpp>
#include <shardkit/comm/cost.hpp>
#include <shardkit/comm/moved.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/core/element.hpp>

namespace shardkit::mpi {

/// Sums with MPI's own reductions, in the order that the implementation chooses. Addends whose type is not the
/// arithmetic of the sum, such as 16-bit ones, are first widened into staging memory and sent at that width; MPI
/// never adds 16-bit numbers. Maxima and minima are made by exchange: MPI may lose a NaN in them, and MPICH 4.0.2
/// compared unsigned words as signed ones.
/// Cost:    that of MPI's algorithms: fewer messages than Exchange on many ranks, twice the bytes for 16-bit addends.
///          Bytes are counted as those of the best algorithm; what the implementation moves is not visible.
struct Staged {
    static constexpr std::string_view name = "staged";
    static constexpr engine::Traits traits{
        .sums_travel_widened = true, .gathers = engine::Crossing::to_hosts, .small_gather = detail::carried_bytes};
    /// MPI adds within a host too.
    static constexpr bool reads_peers = false;

    template <class In, class Out>
    static void reduce_scatter(const detail::Call& call, ReduceOp op, const In* full, std::size_t k, Out* shard) {
        if constexpr (!native<In, Out>) {
            Exchange::reduce_scatter<In, Out>(call, op, full, k, shard);
        } else {
            using A = Arithmetic<Out>;
            if (!by_mpi<In, Out>(op)) {
                Exchange::reduce_scatter<In, Out>(call, op, full, k, shard);
                return;
            }
            const std::size_t ranks = call.group.size();
            constexpr bool same = std::is_same_v<In, Out> && std::is_same_v<Out, A>;
            const bool in_place = static_cast<const void*>(shard) == full + call.group.rank * k;
            if (same && !in_place && k > 0 && k <= call.world.options().message_elements) {
                scatter(call, full, shard, k);
            } else {
                const auto staging = elements<A>(call);
                const std::size_t block =
                    std::min(staging.size() / (ranks + 1), call.world.options().message_elements);
                const std::span<A> sums = staging.subspan(ranks * block, block);
                for (std::size_t at = 0; at < k; at += block) {
                    const std::size_t size = std::min(block, k - at);
                    for (std::size_t rank = 0; rank < ranks; ++rank) {
                        convert(full + rank * k + at, staging.data() + rank * size, size);
                    }
                    scatter(call, staging.data(), sums.data(), size);
                    convert(sums.data(), shard + at, size);
                }
            }
        }
    }
    template <class In, class Out>
    static engine::Moved moved_by_reduce_scatter(const detail::Group& group, ReduceOp op, std::size_t k) noexcept {
        if (!by_mpi<In, Out>(op)) { return Exchange::moved_by_reduce_scatter<In, Out>(group, op, k); }
        return Exchange::moved_by_reduce_scatter<Arithmetic<Out>, Out>(group, op, k);
    }

    template <class In, class Out>
    static void all_reduce(const detail::Call& call, ReduceOp op, const In* input, std::size_t count, Out* output) {
        if constexpr (!native<In, Out>) {
            Exchange::all_reduce<In, Out>(call, op, input, count, output);
        } else {
            using A = Arithmetic<Out>;
            if (!by_mpi<In, Out>(op)) {
                Exchange::all_reduce<In, Out>(call, op, input, count, output);
                return;
            }
            if constexpr (std::is_same_v<In, Out> && std::is_same_v<Out, A>) {
                detail::for_each_piece(call, count, [&](std::size_t at, int size) {
                    const void* const from = input == output ? MPI_IN_PLACE : static_cast<const void*>(input + at);
                    reduce(call, from, output + at, size);
                });
            } else {
                const auto staging = elements<A>(call);
                const std::size_t block = std::min(staging.size(), call.world.options().message_elements);
                for (std::size_t at = 0; at < count; at += block) {
                    const std::size_t size = std::min(block, count - at);
                    convert(input + at, staging.data(), size);
                    reduce(call, MPI_IN_PLACE, staging.data(), static_cast<int>(size));
                    convert(staging.data(), output + at, size);
                }
            }
        }
    }
    template <class In, class Out>
    static engine::Moved moved_by_all_reduce(const World& world, const detail::Group& group, detail::Way way,
                                             ReduceOp op, std::size_t count) {
        if (!by_mpi<In, Out>(op)) { return Exchange::moved_by_all_reduce<In, Out>(world, group, way, op, count); }
        const std::size_t bytes = count * sizeof(Arithmetic<Out>);
        return shardkit::detail::all_reduce_moved(bytes, bytes, group.size(), traits,
                                                  {.to_ranks = group.strangers()});
    }

  private:
    /// Whether MPI can reduce these types, after floating-point ones are widened.
    template <class In, class Out>
    static constexpr bool native = (FloatingElement<In> && FloatingElement<Out>) || std::is_same_v<In, Out>;

    template <class In, class Out>
    static constexpr bool by_mpi(ReduceOp op) noexcept {
        return native<In, Out> && op == ReduceOp::sum;
    }

    template <class In, class Out>
    static void scatter(const detail::Call& call, const In* from, Out* to, std::size_t k) {
        call.lane.complete(call, "MPI_Ireduce_scatter_block", [&](MPI_Request* request) {
            return MPI_Ireduce_scatter_block(from, to, static_cast<int>(k), detail::datatype<Out>(), MPI_SUM,
                                             call.channel.comm, request);
        });
    }
    template <class A>
    static void reduce(const detail::Call& call, const void* from, A* to, int size) {
        call.lane.complete(call, "MPI_Iallreduce", [&](MPI_Request* request) {
            return MPI_Iallreduce(from, to, size, detail::datatype<A>(), MPI_SUM, call.channel.comm, request);
        });
    }
    template <class A>
    static std::span<A> elements(const detail::Call& call) noexcept {
        const auto staging = call.lane.staging();
        return {reinterpret_cast<A*>(staging.data()), staging.size() / sizeof(A)};
    }
    template <class From, class To>
    static void convert(const From* from, To* to, std::size_t count) {
        if constexpr (std::is_same_v<From, To>) {
            host::detail::copy_elements(from, to, count);
        } else {
            shardkit::detail::HostKernels::convert(InlineStream{}, std::span<const From>(from, count),
                                                   std::span<To>(to, count));
        }
    }
};

}  // namespace shardkit::mpi
