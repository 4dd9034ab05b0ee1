// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <shardkit/backend/host/rank_order_reduction.hpp>
#include <shardkit/backend/self/run.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/compiled/core.hpp>
#include <shardkit/param/check_tensors.hpp>
#include <shardkit/rank/all_reduce_value.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/group.hpp>
#include <shardkit/step/local_shards.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/slices.hpp>
#include <shardkit/step/summon_full_params.hpp>

// Defines the functions of interface.hpp, but for optimizers.

namespace shardkit SHARDKIT_FACE {
template double all_reduce_value(Rank&, const Communicator&, double, ReduceOp, SourceLocation);
template float all_reduce_value(Rank&, const Communicator&, float, ReduceOp, SourceLocation);
template bf16 all_reduce_value(Rank&, const Communicator&, bf16, ReduceOp, SourceLocation);
template fp16 all_reduce_value(Rank&, const Communicator&, fp16, ReduceOp, SourceLocation);
template std::int64_t all_reduce_value(Rank&, const Communicator&, std::int64_t, ReduceOp, SourceLocation);
template std::uint64_t all_reduce_value(Rank&, const Communicator&, std::uint64_t, ReduceOp, SourceLocation);
template std::int32_t all_reduce_value(Rank&, const Communicator&, std::int32_t, ReduceOp, SourceLocation);
template std::uint32_t all_reduce_value(Rank&, const Communicator&, std::uint32_t, ReduceOp, SourceLocation);
template std::uint8_t all_reduce_value(Rank&, const Communicator&, std::uint8_t, ReduceOp, SourceLocation);
}  // namespace SHARDKIT_FACE

namespace shardkit::host::detail SHARDKIT_CHECKED_BUILD {
const Reducer& core_reducer(ElementType in, ElementType out) noexcept {
    if (in != out) { return in == ElementType::bf16 ? reducer_of<bf16, float> : reducer_of<fp16, float>; }
    const Reducer* const of[] = {&reducer_of<double, double>,
                                 &reducer_of<float, float>,
                                 &reducer_of<bf16, bf16>,
                                 &reducer_of<fp16, fp16>,
                                 &reducer_of<std::int64_t, std::int64_t>,
                                 &reducer_of<std::int32_t, std::int32_t>,
                                 &reducer_of<std::uint64_t, std::uint64_t>,
                                 &reducer_of<std::uint32_t, std::uint32_t>,
                                 &reducer_of<std::uint8_t, std::uint8_t>};
    return *of[static_cast<std::size_t>(in)];
}
}  // namespace SHARDKIT_CHECKED_BUILD

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {
namespace {
/// The tables of the precisions that the core is compiled for.
template <class... P>
constexpr std::array<const ElementTable*, sizeof...(P)> tables_of(Precisions<P...> /*all*/) noexcept {
    return {&element_table<P>...};
}
/// The elements of a precision, for an error.
std::string name_of(const PrecisionValues& types) {
    const CodeSizes codes = types.sizes.codes;
    return concat(name(types.gather),
                  codes.block > 0  ? " codes in blocks"
                  : codes.gathered ? " codes"
                                   : "",
                  "/", name(types.gradient), "/", name(types.reduction), "/", name(types.master));
}
}  // namespace
}  // namespace SHARDKIT_CHECKED_BUILD

namespace shardkit::detail SHARDKIT_FACE {
Group* make_group(Rank& rank, const PrecisionValues& elements, const GroupValues& values,
                  std::span<std::byte> parameters, std::span<std::byte> gradients, SourceLocation where) {
    std::string known;
    for (const ElementTable* const table : tables_of(compiled::AllPrecisions{})) {
        if (elements == *table) { return detail::make_group(rank, *table, values, parameters, gradients, where); }
        known += (known.empty() ? "" : ", ") + name_of(*table);
    }
    throw_invalid_argument(where, "'", values.path, "': elements ", name_of(elements),
                           " (gathered/gradient/reduction/master), expected a precision that the compiled core has: ",
                           known, "; define SHARDKIT_COMPILED_PRECISIONS where it is compiled");
}
}  // namespace SHARDKIT_FACE
