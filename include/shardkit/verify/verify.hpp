// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/layout/placed_parameter.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>

namespace shardkit {

/// The hash of one group's values of one kind, over all ranks.
struct ValuesHash {
    std::string path;  ///< the group's path: "blocks.3"
    std::string kind;  ///< "parameter", "master", "exp_avg", "reduced gradient", ...
    std::uint64_t hash = 0;

    friend bool operator==(const ValuesHash&, const ValuesHash&) = default;
};

/// The norms of a parameter's, a group's or a model's gradient.
struct GradientNorm {
    std::string path;       ///< of the group; empty for the model
    std::string parameter;  ///< empty for all of them
    double two = 0;         ///< root of the sum of squares
    double infinity = 0;    ///< the largest magnitude; NaN where there is one
};

/// The norms of a model's gradients, in its order. Frozen parameters have none, those of a skipped group are zero.
struct GradientNorms {
    std::vector<GradientNorm> parameters;
    std::vector<GradientNorm> groups;
    GradientNorm model;
};

/// Values of which some ranks hold other bits than the rest.
struct ReplicaDifference {
    std::string what;                ///< "'blocks.3' parameter 'weight'"
    std::vector<std::size_t> ranks;  ///< all ranks that hold them, by their number in the world
    std::vector<std::size_t> wrong;  ///< those that differ from the majority; empty where there is none
};

/// Reports that ranks hold different bits where they should hold equal ones. The text names the values, the ranks and
/// the user's file and line.
class ReplicaError : public std::runtime_error {
  public:
    ReplicaError(std::vector<ReplicaDifference> differences, const std::string& text)
        : std::runtime_error(text), differences_(std::move(differences)) {}

    /// Returns the differences, in the order of the model.
    const std::vector<ReplicaDifference>& differences() const noexcept { return differences_; }

  private:
    std::vector<ReplicaDifference> differences_;
};

}  // namespace shardkit

namespace shardkit::detail SHARDKIT_FACE {
std::uint64_t hash_of_part(const PlacedParameter& parameter, const void* part, std::size_t count, std::size_t bytes,
                           SourceLocation where);
GradientNorms gradient_norms(const Reduced& reduced, SourceLocation where);
}  // namespace shardkit::detail SHARDKIT_FACE

namespace shardkit SHARDKIT_FACE {

/// Checks that ranks hold equal bits of everything that several of them hold: parameters, full copies and masters of
/// the model, as each group's policy places them, tensors that tp does not split, and reduced gradients between their
/// reduction and their update. Memory that fails, or a bug in a kernel of one rank, makes replicas drift apart, and
/// nothing else notices. What one rank alone holds cannot be checked so: with FullShard on an unsplit mesh, nothing.
///     if (step % 100 == 0) { verify_replicas(model, optimizer); }
/// Padding is not compared, and neither are copies of other ranks' shards that the next gather replaces.
/// Order:   collective over the world, between steps or before an update; the host waits for the compute stream
/// Cost:    reads the replicated values once, and gathers 16 bytes of each rank for each set of axes over which some
///          are replicated. Where ranks differ: 16 bytes of each rank for each replicated tensor
/// @throws  ReplicaError, the same on every rank, that names group, parameter and ranks that differ; UsageError where
///          values are half written
void verify_replicas(const Model& model, SourceLocation where = SourceLocation::current());
/// Checks the optimizer's states too, its step counts and its hyper-parameters in the engine's memory.
void verify_replicas(const Model& model, Optimizer& optimizer, SourceLocation where = SourceLocation::current());
/// Checks the numbers of a loss scale as well.
void verify_replicas(const Model& model, Optimizer& optimizer, const LossScale& loss_scale,
                     SourceLocation where = SourceLocation::current());

/// Returns the hash of each group's parameters, and of its master weights where it has some. Two runs whose values
/// have equal bits have equal hashes, whatever the number of ranks and the policy: a hash is the sum, modulo 2^64, of
/// a function of each element's bits, its number in the whole tensor and the tensor's name. Each element is counted
/// by one rank, and integers add up to the same in any order. A single element that changes always changes the hash,
/// as the function is one-to-one in the bits. Halves of split masters have other hashes than masters.
/// Order:   collective over the world; the host waits for the compute stream
/// Cost:    reads each value once, on one rank, and gathers 16 bytes of each rank for each hash
/// @returns the same on every rank, in the model's order
/// @throws  UsageError where values are half written
[[nodiscard]] std::vector<ValuesHash> hash_values(const Model& model,
                                                  SourceLocation where = SourceLocation::current());
/// Returns the hash of each group's reduced gradients: of the sums, which are not divided yet.
[[nodiscard]] std::vector<ValuesHash> hash_values(const Reduced& reduced,
                                                  SourceLocation where = SourceLocation::current());
/// Returns the hash of each of an optimizer's states of each group that has a number for each element: not of what a
/// rule keeps besides, of rows or of whole matrices.
[[nodiscard]] std::vector<ValuesHash> hash_values(Optimizer& optimizer,
                                                  SourceLocation where = SourceLocation::current());

/// Returns what a rank's part of one tensor adds to a hash of the program's own: of a slice's gradients, say, which
/// no other rank has and hash_values never sees. Hashes of all parts and tensors of a group add up, modulo 2^64, to
/// the hash of the group. `part`: all elements of that part, row-major, in host memory.
/// @throws std::invalid_argument for another number of elements
template <class T>
[[nodiscard]] std::uint64_t hash_of_part(const PlacedParameter& parameter, std::span<T> part,
                                         SourceLocation where = SourceLocation::current()) {
    static_assert(std::has_single_bit(sizeof(T)) && sizeof(T) <= 8,
                  "hash_of_part: expected elements of 1, 2, 4 or 8 bytes");
    return detail::hash_of_part(parameter, part.data(), part.size(), sizeof(T), where);
}

/// The 2-norm and the infinity norm of the gradient of each parameter, of each group and of all, after divisor and
/// loss scale: for logs and for choices of the program's. Every distinct element counts once, whatever is replicated
/// or split, and every rank gets the same numbers. They are summed in double; between policies they differ by
/// rounding.
///     for (const auto& norm : gradient_norms(reduced).groups) { log(norm.path, norm.two); }
/// Order:   collective over the world: two all-reduces, of one and of two doubles for each parameter. The host waits.
/// Cost:    a pass over the gradients that this rank counts, two small launches for each parameter
/// @throws  UsageError when the gradients were consumed
template <class X>
GradientNorms gradient_norms(const X& reduced, SourceLocation where = SourceLocation::current()) {
    constexpr bool is_reduced = std::is_same_v<X, Reduced>;
    static_assert(is_reduced,
                  "gradient_norms takes reduced gradients: call reduce(std::move(accumulation), divisor) first");
    if constexpr (is_reduced) { return detail::gradient_norms(reduced, where); }
}

}  // namespace shardkit SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
#include <shardkit/verify/gradient_norms.hpp>
#include <shardkit/verify/hash_values.hpp>
#include <shardkit/verify/verify_replicas.hpp>
#endif
