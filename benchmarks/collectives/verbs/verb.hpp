// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "../options.hpp"
#include "../shape.hpp"

namespace benchmarks {

/// A value, or none where a buffer holds or keeps what was there before.
using Number = std::optional<std::uint64_t>;
/// Element i of a rank's buffer.
using NumberAt = Number (*)(const Shape& shape, std::size_t i);

/// What verbs have in common unless they say otherwise. Besides, a verb V has
///   offered<C, T>              whether an engine's communicator C has the verb for elements T
///   bus_factor(ranks)          bus bandwidth over algorithm bandwidth, as nccl-tests defines them (its PERFORMANCE
///   page) copied(placement, ranks)   what each rank has to copy at least, as a multiple of the size: half of the
///   bytes that
///                              have to be read and written
///   given, expected            element i of what this rank puts in, and of what it must receive
///   call                       the verb itself
/// and, where in_place, the last three with the ending _in_place.
struct Verb {
    static constexpr bool out_of_place = true;
    static constexpr bool in_place = false;
    static constexpr bool reduces = false;
    static constexpr bool has_root = false;
    static constexpr bool moves_data = true;

    /// Pieces that the size consists of.
    static std::size_t pieces(std::size_t) { return 1; }
    /// Elements that this rank sends and receives.
    static std::size_t sent(const Shape& s) { return s.piece; }
    static std::size_t received(const Shape& s) { return s.piece; }
};

}  // namespace benchmarks
