// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <shardkit/backend/host/copy_elements.hpp>
#include <shardkit/backend/host/kernels.hpp>
#include <shardkit/backend/host/memory.hpp>
#include <shardkit/backend/host/reducer.hpp>
#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/collective.hpp>
#include <shardkit/backend/mpi/exchange.hpp>
#include <shardkit/backend/mpi/group.hpp>
#include <shardkit/backend/mpi/world.hpp>
#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/core/element.hpp>

namespace shardkit::mpi::detail {

/// Sums with MPI's own reductions, in the order that the implementation chooses. Addends whose type is not the
/// arithmetic of the sum, such as 16-bit ones, are first widened into staging memory and sent at that width; MPI
/// never adds 16-bit numbers. Maxima and minima are made by exchange: MPI may lose a NaN in them, and MPICH 4.0.2
/// compared unsigned words as signed ones.
/// Cost:    that of MPI's algorithms: fewer messages than Exchange on many ranks, twice the bytes for 16-bit addends.
///          Bytes are counted as those of the best algorithm; what the implementation moves is not visible.
struct Staged {
    static constexpr engine::Traits traits{
        .sums_travel_widened = true, .gathers = engine::Crossing::to_hosts, .small_gather = carried_bytes};

    static void reduce_scatter(const Call& call, const host::Reducer& reducer, ReduceOp op, host::ConstMemory full,
                               host::Memory shard) {
        if (!by_mpi(reducer, op)) { return Exchange::reduce_scatter(Messages{call}, reducer, op, full, shard); }
        const std::size_t ranks = call.group.size();
        const std::size_t k = shard.count;
        const std::size_t most = call.world.options().message_elements;
        const bool in_place = shard.at == full.part(call.group.rank * k, 0).at;
        if (adds_as_given(reducer) && !in_place && k > 0 && k <= most) {
            scatter(call, full.at, shard, reducer.out);
            return;
        }
        const ElementType sum = arithmetic_of(reducer.out);
        const host::Memory staging = memory(call, sum);
        const std::size_t block = std::min(staging.count / (ranks + 1), most);
        for (std::size_t at = 0; at < k; at += block) {
            const std::size_t size = std::min(block, k - at);
            for (std::size_t rank = 0; rank < ranks; ++rank) {
                convert(full.part(rank * k + at, size), reducer.in, staging.part(rank * size, size), sum);
            }
            const host::Memory sums = staging.part(ranks * block, size);
            scatter(call, staging.at, sums, sum);
            convert(sums, sum, shard.part(at, size), reducer.out);
        }
    }
    /// Returns the bytes of an element on the wire.
    static std::size_t sent_size(const host::Reducer& reducer, ReduceOp op) noexcept {
        return by_mpi(reducer, op) ? size_of(arithmetic_of(reducer.out)) : reducer.in_size;
    }

    static void all_reduce(const Call& call, const host::Reducer& reducer, ReduceOp op, host::ConstMemory input,
                           host::Memory output) {
        if (!by_mpi(reducer, op)) { return Exchange::all_reduce(Messages{call}, reducer, op, input, output); }
        if (adds_as_given(reducer)) {
            for_each_piece(call, input.count, [&](std::size_t at, int size) {
                const host::Memory part = output.part(at, static_cast<std::size_t>(size));
                reduce(call, input.at == output.at ? MPI_IN_PLACE : input.part(at, 0).at, part, reducer.out);
            });
            return;
        }
        const ElementType sum = arithmetic_of(reducer.out);
        const host::Memory staging = memory(call, sum);
        const std::size_t block = std::min(staging.count, call.world.options().message_elements);
        for (std::size_t at = 0; at < input.count; at += block) {
            const host::Memory part = staging.part(0, std::min(block, input.count - at));
            convert(input.part(at, part.count), reducer.in, part, sum);
            reduce(call, MPI_IN_PLACE, part, sum);
            convert(part, sum, output.part(at, part.count), reducer.out);
        }
    }
    static std::uint64_t moved_by_all_reduce(const Group& group, const host::Reducer& reducer, ReduceOp op,
                                             host::ConstMemory input) {
        if (!by_mpi(reducer, op)) { return Exchange::moved_by_all_reduce(group, reducer, input); }
        const std::size_t bytes = input.count * sent_size(reducer, op);
        return 2 * shardkit::detail::part_from_peers(bytes, group.size());
    }

  private:
    static constexpr bool is_floating(ElementType type) noexcept {
        return type == ElementType::fp64 || type == ElementType::fp32 || is_16_bit(type);
    }
    static constexpr bool is_16_bit(ElementType type) noexcept {
        return type == ElementType::bf16 || type == ElementType::fp16;
    }
    /// Returns the type in which such elements are added.
    static constexpr ElementType arithmetic_of(ElementType type) noexcept {
        return is_16_bit(type) ? ElementType::fp32 : type;
    }
    /// Returns whether MPI can reduce these types, after floating-point ones are widened.
    static bool by_mpi(const host::Reducer& reducer, ReduceOp op) noexcept {
        const bool native = (is_floating(reducer.in) && is_floating(reducer.out)) || reducer.in == reducer.out;
        return native && op == ReduceOp::sum;
    }
    static bool adds_as_given(const host::Reducer& reducer) noexcept {
        return reducer.in == reducer.out && !is_16_bit(reducer.out);
    }

    static void scatter(const Call& call, const void* from, host::Memory to, ElementType sum) {
        call.lane.complete(call, "MPI_Ireduce_scatter_block", [&](MPI_Request* request) {
            return MPI_Ireduce_scatter_block(from, to.at, static_cast<int>(to.count), datatype(sum), MPI_SUM,
                                             call.channel.comm, request);
        });
    }
    static void reduce(const Call& call, const void* from, host::Memory to, ElementType sum) {
        call.lane.complete(call, "MPI_Iallreduce", [&](MPI_Request* request) {
            return MPI_Iallreduce(from, to.at, static_cast<int>(to.count), datatype(sum), MPI_SUM, call.channel.comm,
                                  request);
        });
    }
    static host::Memory memory(const Call& call, ElementType type) noexcept {
        const auto staging = call.lane.staging();
        return {reinterpret_cast<std::byte*>(staging.data()), staging.size() / size_of(type), size_of(type)};
    }
    /// Calls f(T{}) with an element of that floating-point type.
    template <class F>
    static void with_element(ElementType type, const F& f) {
        switch (type) {
            case ElementType::fp64:
                return f(double{});
            case ElementType::fp32:
                return f(float{});
            case ElementType::bf16:
                return f(bf16{});
            case ElementType::fp16:
                return f(fp16{});
            default:
                return;
        }
    }
    static void convert(host::ConstMemory from, ElementType of, host::Memory to, ElementType into) {
        if (of == into) {
            host::detail::copy_elements(from.at, to.at, from.bytes());
            return;
        }
        with_element(of, [&](auto read) {
            with_element(into, [&](auto written) {
                shardkit::detail::HostKernels::convert(
                    shardkit::detail::InlineStream{},
                    std::span(reinterpret_cast<const decltype(read)*>(from.at), from.count),
                    std::span(reinterpret_cast<decltype(written)*>(to.at), to.count));
            });
        });
    }
};

}  // namespace shardkit::mpi::detail
