// SPDX-License-Identifier: Apache-2.0
#pragma once

// The core's parts behind plan.hpp, muon.hpp, adafactor.hpp, moving_average.hpp and verify.hpp: see compiled.hpp.

#include <shardkit/compiled/part_begins.inc>

#include <shardkit/compiled/define_parts.hpp>

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {
std::uint64_t hash_of_part(const PlacedParameter& parameter, const void* part, std::size_t count, std::size_t bytes,
                           SourceLocation where) {
    return shardkit::detail::hash_of_part(parameter, part, count, bytes, where);
}

}  // namespace SHARDKIT_CHECKED_BUILD

#include <shardkit/detail/show_macros.inc>
