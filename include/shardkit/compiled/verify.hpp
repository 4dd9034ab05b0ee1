// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include <shardkit/compiled/parts_interface.hpp>
#include <shardkit/step/reduce.hpp>

// What verify.hpp is in the compiled form.

namespace shardkit SHARDKIT_BUILD {

/// Checks that ranks hold equal bits of everything that several of them hold: see verify/verify_replicas.hpp.
inline void verify_replicas(const Model& model, SourceLocation where = SourceLocation::current()) {
    compiled::verify_replicas(model, nullptr, nullptr, where);
}
inline void verify_replicas(const Model& model, Optimizer& optimizer,
                            SourceLocation where = SourceLocation::current()) {
    compiled::verify_replicas(model, &optimizer, nullptr, where);
}
inline void verify_replicas(const Model& model, Optimizer& optimizer, const LossScale& loss_scale,
                            SourceLocation where = SourceLocation::current()) {
    compiled::verify_replicas(model, &optimizer, &loss_scale, where);
}

/// Returns the hash of each group's parameters, and of its master weights where it has some: see
/// verify/hash_values.hpp.
[[nodiscard]] inline std::vector<ValuesHash> hash_values(const Model& model,
                                                         SourceLocation where = SourceLocation::current()) {
    return compiled::hash_values(model, where);
}
[[nodiscard]] inline std::vector<ValuesHash> hash_values(const Reduced& reduced,
                                                         SourceLocation where = SourceLocation::current()) {
    return compiled::hash_values(reduced, where);
}
[[nodiscard]] inline std::vector<ValuesHash> hash_values(Optimizer& optimizer,
                                                         SourceLocation where = SourceLocation::current()) {
    return compiled::hash_values(optimizer, where);
}
/// Returns what a rank's part of one tensor adds to a hash of the program's own: see verify/hash_values.hpp.
template <class T>
[[nodiscard]] std::uint64_t hash_of_part(const PlacedParameter& parameter, std::span<T> part,
                                         SourceLocation where = SourceLocation::current()) {
    static_assert(std::has_single_bit(sizeof(T)) && sizeof(T) <= 8,
                  "hash_of_part: expected elements of 1, 2, 4 or 8 bytes");
    return compiled::hash_of_part(parameter, part.data(), part.size(), sizeof(T), where);
}

/// The norms of the gradient of each parameter, of each group and of all: see verify/gradient_norms.hpp.
template <class X>
GradientNorms gradient_norms(const X& reduced, SourceLocation where = SourceLocation::current()) {
    constexpr bool is_reduced = std::is_same_v<X, Reduced>;
    static_assert(is_reduced,
                  "gradient_norms takes reduced gradients: call reduce(std::move(accumulation), divisor) first");
    if constexpr (is_reduced) { return compiled::gradient_norms(reduced, where); }
}

}  // namespace SHARDKIT_BUILD
