// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <type_traits>

#include <shardkit/rank/rank.hpp>

#include "../../examples/common/input_error.hpp"
#include "../common/measure.hpp"
#include "elements.hpp"
#include "options.hpp"

namespace benchmarks {

/// The collective with its buffers.
/// @throws InputError when the engine lacks the verb for these elements; std::bad_alloc
/// @pre     the verb has this placement
inline std::unique_ptr<Workload> make_workload(shardkit::Rank& rank, const shardkit::Communicator& group,
                                               VerbKind verb, DataType type, Placement placement,
                                               const Shape& shape) {
    std::unique_ptr<Workload> made;
    const auto make = [&]<class V, class T>(V, std::type_identity<T>) {
        if constexpr (V::in_place) {
            if (placement == Placement::in_place) { made = std::make_unique<InPlace<V, T>>(rank, group, shape); }
        }
        if constexpr (V::out_of_place) {
            if (placement == Placement::out_of_place) {
                made = std::make_unique<OutOfPlace<V, T>>(rank, group, shape);
            }
        }
    };
    with_verb(verb, [&]<class V>(V chosen) {
        if constexpr (V::moves_data) {
            with_type(type, [&](auto element) { make(chosen, element); });
        } else {
            make(chosen, std::type_identity<std::uint8_t>{});
        }
    });
    if (!made) {
        throw program::InputError("--engine " + std::string(rank.world().engine_name()) + ": has no " +
                                  std::string(verb_names[static_cast<std::size_t>(verb)]) + " of " +
                                  std::string(type_names[static_cast<std::size_t>(type)]) +
                                  ": expected another --verb or --datatype");
    }
    return made;
}

}  // namespace benchmarks
