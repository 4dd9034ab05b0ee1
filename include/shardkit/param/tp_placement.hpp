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

namespace detail {
template <class P>
constexpr TpPlacement tp_placement() noexcept {
    if constexpr (requires { P::TensorParallel::placement; }) {
        return P::TensorParallel::placement;
    } else {
        return tp::Replicated::placement;
    }
}

/// The placement of a Param over tp.
template <class P>
inline constexpr TpPlacement tp_placement_of = tp_placement<P>();

}  // namespace detail

}  // namespace shardkit
