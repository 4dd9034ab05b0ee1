// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <shardkit/backend/cub/combine.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/host/device_kernels.hpp>
#include <shardkit/backend/host/memory.hpp>
#include <shardkit/backend/host/reducer.hpp>
#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/call.hpp>
#include <shardkit/backend/nccl/collectives.hpp>
#include <shardkit/backend/nccl/group_guard.hpp>
#include <shardkit/backend/nccl/said_of_call.hpp>
#include <shardkit/backend/nccl/staged_pieces.hpp>
#include <shardkit/backend/nccl/world_state.hpp>
#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/layout/index_range.hpp>

namespace shardkit::nccl::detail {

/// A reduction, with NCCL's own sums, in the order that NCCL chooses. It differs between an all-reduce and a
/// reduce-scatter: the bits are not those of another engine or policy. Addends whose type is not the arithmetic of
/// the sum, such as 16-bit ones, are widened into staging memory piece by piece and sent at that width, as NCCL would
/// round to 16 bits at every addition. NCCL's average is never used. Maxima and minima of floating-point elements are
/// collected in staging memory and compared there, with one thread for each element: correct for NaN, and meant for
/// few elements.
/// Where NCCL adds 16-bit elements as Sums::by_nccl asks, they travel as they are, and its sums of 16 bits are
/// widened behind it. A tree_sum, and what Options::sums says, are exchanges: the elements travel as they are, and
/// one kernel adds those of all ranks along the tree or in rank order, so that the bits are those of the host's
/// engines. Each function returns the bytes between this rank and its peers, those of NCCL's ring or of the exchange.
class Reduction {
    using ConstMemory = host::ConstMemory;
    using Memory = host::Memory;
    using Step = engine::ReductionStep;
    using Way = engine::ReductionStep::Way;

  public:
    Reduction(const Call& call, const host::detail::Reducer& types, ReduceOp op) noexcept
        : call_(call), types_(types), op_(op), ranks_(call.group.size) {}

    std::size_t reduce_scatter(ConstMemory full, Memory shard) const {
        const std::size_t k = shard.count;
        if (ranks_ == 1) {
            copy(call_.stream, full, shard);
        } else if (floating() && (op_ != ReduceOp::sum || exchanges(full))) {
            exchange(full, k, shard);
            return (ranks_ - 1) * k * full.size;
        } else if (stays_narrow(full) && fits(shard)) {
            scatter_narrow(full, shard);
            return (ranks_ - 1) * k * full.size;
        } else if (same()) {
            if (k > 0) { scatter(full.at, shard.at, k); }
        } else {
            sum_and_scatter(full, shard);
        }
        return (ranks_ - 1) * k * arithmetic_size();
    }

    std::size_t all_reduce(ConstMemory input, Memory output) const {
        using shardkit::detail::part_from_peers;
        const std::size_t count = input.count;
        if (ranks_ == 1) {
            copy(call_.stream, input, output);
        } else if (floating() && (op_ != ReduceOp::sum || exchanges(input))) {
            if (shardkit::detail::adds(op_)) {
                sum_by_exchange(input, output);
                return part_from_peers(count * (input.size + output.size), ranks_);
            }
            gather_and_combine(input, output);
            return (ranks_ - 1) * count * input.size;
        } else if (stays_narrow(input)) {
            reduce_narrow(input, output);
            return 2 * part_from_peers(count * input.size, ranks_);
        } else if (same()) {
            if (count > 0) { reduce(input.at, output.at, count); }
        } else {
            pieces(arithmetic_size(), 1)
                .summed(
                    count, count,
                    [&](const StagedPiece& p) {
                        give(p.stream, {.way = Way::widen,
                                        .from = input.part(p.at, p.size).at,
                                        .to = p.staging,
                                        .count = p.size});
                    },
                    [&](const StagedPiece& p) {
                        const bool direct = types_.out_is_arithmetic;
                        reduce(p.staging, direct ? output.part(p.at, p.size).at : p.staging, p.size);
                    },
                    [&](const StagedPiece& p) { narrow_sums(p.stream, p.staging, output.part(p.at, p.size)); });
        }
        return 2 * part_from_peers(count * arithmetic_size(), ranks_);
    }

  private:
    bool floating() const noexcept { return types_.on_device != nullptr; }
    std::size_t arithmetic_size() const noexcept { return size_of(types_.arithmetic); }
    /// Whether NCCL can reduce directly from the input into the output, without conversion or widening.
    bool same() const noexcept { return types_.one_type && types_.out_is_arithmetic; }
    /// Returns whether a sum of those addends on each rank is an exchange.
    bool exchanges(ConstMemory addends) const noexcept {
        return addends.bytes() >= call_.world.options().sums.exchange_from();
    }
    /// Returns whether NCCL adds these addends of 16 bits as they are, so that its sums become the result without a
    /// second rounding. It needs them in its windows, and all ranks give the same.
    bool stays_narrow(ConstMemory addends) const {
        return floating() && addends.size == 2 && (types_.one_type || types_.out_is_arithmetic) &&
               op_ == ReduceOp::sum && call_.group.sums != nullptr &&
               call_.world.in_chunks(addends.at, addends.bytes());
    }
    /// Returns whether those sums, if they are to be widened, fit in the staging memory at once: rows of addends
    /// would lie apart otherwise.
    bool fits(Memory sums) const {
        return types_.one_type || sums.count * types_.in_size <= call_.world.staging(call_.stream).size();
    }
    StagedPieces pieces(std::size_t element_size, std::size_t rows) const {
        return StagedPieces(call_, rows, element_size);
    }

    /// Gives a step's kernel to a stream.
    void give(const gpu::TimelineRef& stream, const Step& step) const {
        if (step.count > 0) { types_.on_device(stream, step); }
    }
    /// Copies or converts: a reduction over one rank, or of sums that have the inputs' type.
    void copy(const gpu::TimelineRef& stream, ConstMemory from, Memory to) const {
        if (types_.one_type) { return copy_alone(call_, {from.at, to.bytes(), 1}, {to.at, to.bytes(), 1}, stream); }
        give(stream, {.way = Way::convert, .from = from.at, .to = to.at, .count = to.count});
    }
    /// Narrows sums into the result, unless they are made there.
    void narrow_sums(const gpu::TimelineRef& stream, const std::byte* sums, Memory to) const {
        if (types_.out_is_arithmetic) { return; }
        give(stream, {.way = Way::narrow, .from = sums, .to = to.at, .count = to.count});
    }

    /// Sums each rank's row of addends into this rank's shard.
    void sum_and_scatter(ConstMemory full, Memory shard) const {
        // Into the shard, or in place if they are narrowed afterwards.
        const auto sums = [&](const StagedPiece& p) {
            return types_.out_is_arithmetic ? shard.part(p.at, p.size).at
                                            : p.staging + call_.group.rank * p.size * arithmetic_size();
        };
        pieces(arithmetic_size(), ranks_)
            .summed(
                shard.count, shard.count,
                [&](const StagedPiece& p) {
                    give(p.stream, {.way = Way::widen,
                                    .from = full.part(p.at, p.size).at,
                                    .to = p.staging,
                                    .count = ranks_ * p.size,
                                    .columns = p.size,
                                    .stride = shard.count});
                },
                [&](const StagedPiece& p) { scatter(p.staging, sums(p), p.size); },
                [&](const StagedPiece& p) { narrow_sums(p.stream, sums(p), shard.part(p.at, p.size)); });
    }

    void scatter_narrow(ConstMemory full, Memory shard) const {
        if (shard.count == 0) { return; }
        const Call narrow = over_sums(call_);
        std::byte* const sums = types_.one_type ? shard.at : call_.world.staging(call_.stream).data();
        narrow.world.complete(narrow, "ncclReduceScatterConfig", [&](ncclComm_t comm) {
            return detail::reduce_scatter(said(narrow, full.bytes()), full.at, sums, shard.count, datatype(types_.in),
                                          ncclSum, comm, call_.stream.native());
        });
        copy(call_.stream, {sums, shard.count, full.size}, shard);
    }
    void reduce_narrow(ConstMemory input, Memory output) const {
        const Call narrow = over_sums(call_);
        const auto add = [&](const StagedPiece& p) {
            narrow.world.complete(narrow, "ncclAllReduceConfig", [&](ncclComm_t comm) {
                return detail::all_reduce(said(narrow, p.size * input.size), input.part(p.at, p.size).at, p.staging,
                                          p.size, datatype(types_.in), ncclSum, comm, p.stream.native());
            });
        };
        if (types_.one_type && call_.world.in_chunks(output.at, output.bytes())) {
            if (input.count > 0) { add({call_.stream, output.at, 0, input.count}); }
            return;
        }
        StagedPieces(narrow, 1, input.size)
            .summed(input.count, input.count, nothing_to_widen, add, [&](const StagedPiece& p) {
                copy(p.stream, {p.staging, p.size, input.size}, output.part(p.at, p.size));
            });
    }
    /// Returns the call over the communicator on which NCCL adds 16-bit elements.
    static Call over_sums(const Call& call) noexcept {
        return {call.world, *call.group.sums, call.axes, call.verb, call.where, call.stream, call.number};
    }
    static SaidOfCall said(const Call& narrow, std::size_t bytes) {
        SaidOfCall said = said_of(narrow, bytes);
        said.symmetric = true;
        return said;
    }

    /// Returns rank q's part of `all` elements, which are `each` a rank as far as there are some: from its element
    /// `at` on, at most `size`.
    static IndexRange part_of(std::size_t all, std::size_t each, std::size_t q, std::size_t at, std::size_t size) {
        const std::size_t begin = std::min(all, q * each + at);
        return {begin, std::min(all, begin + size)};
    }
    /// Sends each rank its part of this rank's elements, and combines what this rank receives into `output`.
    void exchange(ConstMemory input, std::size_t each, Memory output) const {
        const auto part = [&](std::size_t q, const StagedPiece& p) {
            return part_of(input.count, each, q, p.at, p.size);
        };
        pieces(types_.in_size, ranks_)
            .summed(
                each, gpu::detail::row_stride(each), nothing_to_widen,
                [&](const StagedPiece& p) {
                    const Memory received(p.staging, 0, input.size);
                    const std::size_t own = part(call_.group.rank, p).size();
                    with_peers(
                        call_, types_.in,
                        [&](std::size_t q) { return input.part(part(q, p).begin, part(q, p).size()); },
                        [&](std::size_t q) { return received.part(q * gpu::detail::row_stride(own), own); });
                },
                [&](const StagedPiece& p) {
                    const std::size_t own = part(call_.group.rank, p).size();
                    combine(p.stream, p.staging, gpu::detail::row_stride(own), output.part(p.at, own));
                });
    }
    void combine(const gpu::TimelineRef& stream, const std::byte* rows, std::size_t stride, Memory to) const {
        give(stream, {.way = Way::combine,
                      .from = rows,
                      .to = to.at,
                      .count = to.count,
                      .columns = to.count,
                      .stride = stride,
                      .op = op_,
                      .ranks = ranks_});
    }
    void gather_and_combine(ConstMemory input, Memory output) const {
        pieces(input.size, ranks_)
            .one_after_the_other(input.count, [&](std::byte* staging, std::size_t at, std::size_t size) {
                const ConstMemory piece = input.part(at, size);
                call_.world.complete(call_, "ncclAllGather", [&](ncclComm_t comm) {
                    return detail::all_gather(said_of(call_, piece.bytes()), piece.at, staging, size,
                                              datatype(types_.in), comm, call_.stream.native());
                });
                combine(call_.stream, staging, size, output.part(at, size));
            });
    }

    /// Adds one part on each rank and gathers the sums: the bytes of a reduce-scatter of the inputs and of an
    /// all-gather of the results.
    void sum_by_exchange(ConstMemory input, Memory output) const {
        if (input.count == 0) { return; }
        const std::size_t each = gpu::detail::row_stride((input.count + ranks_ - 1) / ranks_);
        const auto part = [&](std::size_t q) {
            const IndexRange range = part_of(input.count, each, q, 0, each);
            return output.part(range.begin, range.size());
        };
        const Memory own = part(call_.group.rank);
        exchange(input, each, own);
        const auto others = [&](std::size_t q, Memory memory) {
            return q == call_.group.rank ? memory.part(0, 0) : memory;
        };
        with_peers(
            call_, types_.out, [&](std::size_t q) { return others(q, own); },
            [&](std::size_t q) { return others(q, part(q)); });
    }

    // Sums in the arithmetic type.
    void scatter(const std::byte* from, std::byte* to, std::size_t k) const {
        call_.world.complete(call_, "ncclReduceScatter", [&](ncclComm_t comm) {
            return detail::reduce_scatter(said_of(call_, ranks_ * k * arithmetic_size()), from, to, k,
                                          datatype(types_.arithmetic), native(op_), comm, call_.stream.native());
        });
    }
    void reduce(const std::byte* from, std::byte* to, std::size_t count) const {
        call_.world.complete(call_, "ncclAllReduce", [&](ncclComm_t comm) {
            return detail::all_reduce(said_of(call_, count * arithmetic_size()), from, to, count,
                                      datatype(types_.arithmetic), native(op_), comm, call_.stream.native());
        });
    }

    const Call& call_;
    const host::detail::Reducer& types_;
    ReduceOp op_;
    std::size_t ranks_;
};

}  // namespace shardkit::nccl::detail
