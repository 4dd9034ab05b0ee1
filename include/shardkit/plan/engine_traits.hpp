// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace shardkit {

/// What the planner must know of an engine: where it moves or keeps more bytes than the verbs themselves say.
/// An engine states its own as a member `traits`; the default is an engine that adds in place.
struct EngineTraits {
    /// Sums travel in the arithmetic of their result (16-bit addends as fp32), not in the addends' type.
    bool sums_travel_widened = false;
    /// An all_reduce is gathered by every rank, who all add it, up to so many bytes of addends of each rank.
    std::size_t gathered_all_reduce_addends = 0;
    /// The same, up to so many bytes over all ranks.
    std::size_t gathered_all_reduce_bytes = 0;

    constexpr bool gathers_all_reduce(std::size_t addends, std::size_t ranks) const noexcept {
        return addends <= gathered_all_reduce_addends || addends * ranks <= gathered_all_reduce_bytes;
    }

    friend constexpr bool operator==(const EngineTraits&, const EngineTraits&) noexcept = default;
};

namespace detail {
template <class Engine>
constexpr EngineTraits engine_traits() noexcept {
    if constexpr (requires { Engine::traits; }) {
        return Engine::traits;
    } else {
        return {};
    }
}
}  // namespace detail

}  // namespace shardkit
