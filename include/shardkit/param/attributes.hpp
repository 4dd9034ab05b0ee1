// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace shardkit {

/// How the ranks of tp hold a parameter and its gradient, as a value. The types are tp::Split, tp::Replicated and
/// tp::PartialSum.
struct TpPlacement {
    enum class Kind : std::uint8_t {
        replicated,   ///< every rank holds the whole parameter and computes its whole gradient
        partial_sum,  ///< every rank holds the whole parameter; the ranks' gradients are addends
        split         ///< every rank holds a part of the parameter, and the whole gradient of that part
    };
    Kind kind = Kind::replicated;
    std::size_t dimension = 0;  ///< the dimension of a split

    friend constexpr bool operator==(TpPlacement, TpPlacement) noexcept = default;
};

/// The values of a parameter's member type TensorParallel. A parameter derives from one of them:
///     struct UpWeight : Param<"up_weight", float, dynamic, dynamic>, tp::Split<0> {};
namespace tp {

/// Marks a parameter that is whole on every rank of tp, as is its gradient: the ranks compute the same numbers. This
/// is the default for a parameter without TensorParallel.
struct Replicated {
    using TensorParallel = Replicated;
    static constexpr TpPlacement placement{TpPlacement::Kind::replicated, 0};
};
/// Marks a parameter that is whole on every rank of tp and whose gradient is a sum over tp. `reduce` makes that sum
/// after the one over the data axes. With sequence parallelism these are norms, biases of row-parallel layers and
/// replicated position embeddings.
struct PartialSum {
    using TensorParallel = PartialSum;
    static constexpr TpPlacement placement{TpPlacement::Kind::partial_sum, 0};
};
/// Marks a parameter that is split into equal parts along a dimension, one for each rank of tp; each rank has the
/// gradient of its part. A column-parallel weight stored as [out, in] and its bias are Split<0>, a row-parallel
/// weight is Split<1>.
template <std::size_t Dimension>
struct Split {
    using TensorParallel = Split;
    static constexpr TpPlacement placement{TpPlacement::Kind::split, Dimension};
};

}  // namespace tp

/// The choices for one parameter besides its name and shape. They are stated on its type (tp::Split, Frozen,
/// NoDecay, NoMatrix, OverwrittenGradient), in the list of a TensorList, or for a group in ShardedOptions; all end in
/// the parameter's record.
struct ParameterAttributes {
    TpPlacement tp{};          ///< how the ranks of tp hold the parameter
    bool frozen = false;       ///< excluded from the norm and the update
    bool decay = true;         ///< weight decay applies; a ParamGroup with a weight_decay of its own overrides it
    bool matrix = true;        ///< with two dimensions or more: one that an optimizer of whole matrices takes
    bool overwritten = false;  ///< its gradient is not zeroed: see OverwrittenGradient
    bool experts = false;      ///< its first extent counts experts, which the ranks of ep share: see ep::Split

    /// Returns whether the backward pass finds no zeros in the gradient's buffer where a sum begins.
    constexpr bool leaves_unzeroed() const noexcept { return overwritten && !frozen; }
    friend constexpr bool operator==(const ParameterAttributes&, const ParameterAttributes&) noexcept = default;
};

/// Marks a parameter that is not trained:
///     struct Table : Param<"table", float, 128, 64>, Frozen {};
struct Frozen {
    static constexpr bool frozen = true;
};
/// Marks a parameter without weight decay, as is usual for biases and norms.
struct NoDecay {
    static constexpr bool decay = false;
};
/// Marks a parameter of two dimensions or more that is no linear map between hidden features, or no stack of such: a
/// table of vectors, as an embedding or a head, or a kernel. An optimizer of whole matrices (Muon) leaves it to
/// another.
struct NoMatrix {
    static constexpr bool matrix = false;
};
/// Marks a parameter whose gradient the backward pass overwrites where a sum begins, instead of adding to zeros: with
/// products whose beta is 0, say. The library then does not zero it. Gradients::overwrites says when a sum begins. A
/// frozen parameter's gradient is zeroed all the same, as nobody has to compute it.
struct OverwrittenGradient {
    static constexpr bool overwritten = true;
};

/// The values of a parameter that ranks of ep share.
namespace ep {

/// Marks a stack of experts: the first extent is their number, and each rank of ep holds as many, one behind the
/// other. Such parameters are in groups of their own, whose gradients are summed over EpDp and DpReplicate:
///     struct Up : Param<"up", float, dynamic, dynamic, dynamic>, ep::Split, tp::Split<1> {};
/// With tp::Split<D>, D at least 1, the ranks of tp hold a part of each expert.
struct Split {
    static constexpr bool experts = true;
};

}  // namespace ep

}  // namespace shardkit

namespace shardkit::detail {

/// The placement of a Param over tp.
template <class P>
inline constexpr TpPlacement tp_placement_of = [] {
    if constexpr (requires { P::TensorParallel::placement; }) {
        return P::TensorParallel::placement;
    } else {
        return tp::Replicated::placement;
    }
}();

/// The attributes of a Param.
template <class P>
inline constexpr ParameterAttributes attributes_of = [] {
    ParameterAttributes stated{tp_placement_of<P>};
    if constexpr (requires { P::frozen; }) { stated.frozen = P::frozen; }
    if constexpr (requires { P::decay; }) { stated.decay = P::decay; }
    if constexpr (requires { P::matrix; }) { stated.matrix = P::matrix; }
    if constexpr (requires { P::overwritten; }) { stated.overwritten = P::overwritten; }
    if constexpr (requires { P::experts; }) { stated.experts = P::experts; }
    return stated;
}();

/// Returns whether all tp::PartialSum among `parameters` are neighbours, so that one call sums them.
template <class Parameters>
constexpr bool partial_sums_adjacent(const Parameters& parameters) noexcept {
    std::size_t runs = 0;
    bool inside = false;
    for (const ParameterAttributes& each : parameters) {
        const bool partial = each.tp.kind == TpPlacement::Kind::partial_sum;
        runs += partial && !inside ? 1U : 0U;
        inside = partial;
    }
    return runs <= 1;
}

/// Returns whether all of `parameters` are experts, or none is: their gradients are summed over other ranks.
template <class Parameters>
constexpr bool experts_apart(const Parameters& parameters) noexcept {
    std::size_t experts = 0;
    for (const ParameterAttributes& each : parameters) { experts += each.experts ? 1U : 0U; }
    return experts == 0 || experts == parameters.size();
}

/// Returns whether tp splits the dimension along which experts are stacked.
constexpr bool tp_splits_stack(const ParameterAttributes& parameter) noexcept {
    return parameter.experts && parameter.tp.kind == TpPlacement::Kind::split && parameter.tp.dimension == 0;
}

}  // namespace shardkit::detail
