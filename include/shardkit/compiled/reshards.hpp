// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include <shardkit/compiled/reshard_interface.hpp>
#include <shardkit/reshard/reshard_side.hpp>

// What reshard.hpp is in the compiled form; its functions are described in reshard/reshard.hpp.

namespace shardkit::detail SHARDKIT_BUILD {
/// Null where the rank has no state.
inline const compiled::SavedState* core_of(const ReshardSide& side) noexcept {
    return side.state() == nullptr ? nullptr : &side.state()->core();
}
}  // namespace SHARDKIT_BUILD

namespace shardkit SHARDKIT_BUILD {

inline ReshardPlan plan_reshard(Rank& rank, const std::type_identity_t<ReshardSide>& from,
                                const std::type_identity_t<ReshardSide>& to, const ReshardOptions& options = {},
                                SourceLocation where = SourceLocation::current()) {
    return compiled::plan_reshard(rank, detail::core_of(from), detail::core_of(to), options, where);
}
inline ReshardReport reshard(Rank& rank, const ReshardPlan& plan, const std::type_identity_t<ReshardSide>& from,
                             const std::type_identity_t<ReshardSide>& to,
                             SourceLocation where = SourceLocation::current()) {
    return compiled::reshard(rank, &plan, detail::core_of(from), detail::core_of(to), plan.options(), where);
}
inline ReshardReport reshard(Rank& rank, const std::type_identity_t<ReshardSide>& from,
                             const std::type_identity_t<ReshardSide>& to, const ReshardOptions& options = {},
                             SourceLocation where = SourceLocation::current()) {
    return compiled::reshard(rank, nullptr, detail::core_of(from), detail::core_of(to), options, where);
}

}  // namespace SHARDKIT_BUILD
