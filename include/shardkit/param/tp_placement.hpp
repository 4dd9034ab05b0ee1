// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace shardkit {

/// Says how the ranks of tp hold a parameter and its gradient, as a value. In types: tp::Split, tp::Replicated,
/// tp::PartialSum.
struct TpPlacement {
    enum class Kind : std::uint8_t {
        replicated,   ///< every rank holds all of it and computes its whole gradient
        partial_sum,  ///< every rank holds all of it; the ranks' gradients are addends
        split         ///< every rank holds a part, and that part's whole gradient
    };
    Kind kind = Kind::replicated;
    std::size_t dimension = 0;  ///< of a split

    friend constexpr bool operator==(TpPlacement, TpPlacement) noexcept = default;
};

/// Holds what a parameter's member type TensorParallel may be; deriving from one of them brings it along:
///     struct UpWeight : Param<"up_weight", float, dynamic, dynamic>, tp::Split<0> {};
namespace tp {

/// Marks a parameter that is whole on every rank of tp, and so is its gradient: peers compute the same numbers. What
/// a parameter without TensorParallel is.
struct Replicated {
    using TensorParallel = Replicated;
    static constexpr TpPlacement placement{TpPlacement::Kind::replicated, 0};
};
/// Marks a parameter that is whole on every rank of tp; its gradient is a sum over tp, which `reduce` makes after the
/// sum over the data axes. With sequence parallelism: norms, biases of row-parallel layers, replicated position
/// embeddings.
struct PartialSum {
    using TensorParallel = PartialSum;
    static constexpr TpPlacement placement{TpPlacement::Kind::partial_sum, 0};
};
/// Marks a parameter that is split into equal parts along a dimension, one for each rank of tp; each has its part's
/// gradient. A column-parallel weight stored [out, in] and its bias are Split<0>, a row-parallel weight is Split<1>.
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

/// Holds the placement over tp of a Param.
template <class P>
inline constexpr TpPlacement tp_placement_of = tp_placement<P>();

}  // namespace detail

}  // namespace shardkit
