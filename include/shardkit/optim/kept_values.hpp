// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>

namespace shardkit::detail {

/// A state of one parameter that has a shape of its own, as a checkpoint has it: rows of `of_each` elements. One rank
/// has them, as the owner of its matrices does, or every rank has all.
template <std::floating_point A>
struct KeptValues {
    std::string_view name = "kept";  ///< in a checkpoint
    std::size_t parameter = 0;
    std::size_t tp = 0;     ///< whose part of the parameter they are of
    std::size_t parts = 1;  ///< of how many
    std::size_t rows = 0;
    std::size_t of_each = 0;
    bool everywhere = false;  ///< whether every rank has them, of all experts too
    bool owned = false;       ///< whether this rank has them
    std::span<A> values{};    ///< in the engine's memory; empty on other ranks
};

}  // namespace shardkit::detail
