// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/codes.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/policy/element_sizes.hpp>
#include <shardkit/policy/sharded_options.hpp>

namespace shardkit::detail {

constexpr std::size_t narrowest_of(std::size_t size) noexcept { return size; }
constexpr std::size_t narrowest_of(std::size_t size, auto... others) noexcept {
    const std::size_t other = narrowest_of(others...);
    return size < other ? size : other;
}
template <class G, class D, class R, class M>
struct FourTypes {
    using Gather = G;
    using Gradient = D;
    using Reduction = R;
    using Master = M;

    static constexpr bool gathers_codes = is_coded<G>;
    static_assert(!is_coded<D> && !is_coded<R> && !is_coded<M>,
                  "Precision: 8-bit codes are what is gathered, made from masters; name the type of gradients, as "
                  "Precision<e4m3, bf16>");
    /// What a group has that keeps no master: codes are made from masters.
    using Written = std::conditional_t<gathers_codes, M, G>;

    static constexpr bool has_master = !std::is_same_v<Master, Gather>;
    static constexpr bool reduces_in_place = std::is_same_v<Gradient, Reduction>;
    static constexpr std::size_t narrowest = narrowest_of(sizeof(G), sizeof(D), sizeof(R), sizeof(M));
};

}  // namespace shardkit::detail

namespace shardkit SHARDKIT_BUILD {
/// The type that a Precision is an alias of, without the types at its end that are the usual ones: error messages
/// show PrecisionTypes<float> for fp32 throughout. Write Precision. What is compiled for a precision differs in a
/// checked build, and so does its name.
template <class... Types>
struct PrecisionTypes;
template <class G>
struct PrecisionTypes<G> : detail::FourTypes<G, G, Arithmetic<G>, Arithmetic<G>> {};
template <class G, class D>
struct PrecisionTypes<G, D> : detail::FourTypes<G, D, Arithmetic<D>, Arithmetic<G>> {};
template <class G, class D, class R>
struct PrecisionTypes<G, D, R> : detail::FourTypes<G, D, R, Arithmetic<G>> {};
template <class G, class D, class R, class M>
struct PrecisionTypes<G, D, R, M> : detail::FourTypes<G, D, R, M> {};
}  // namespace shardkit SHARDKIT_BUILD

namespace shardkit::detail {

/// One type for equal precisions, however they are written.
template <class G, class D, class R, class M>
using ShortestPrecision = std::conditional_t<
    !std::is_same_v<M, Arithmetic<G>>, PrecisionTypes<G, D, R, M>,
    std::conditional_t<!std::is_same_v<R, Arithmetic<D>>, PrecisionTypes<G, D, R>,
                       std::conditional_t<!std::is_same_v<D, G>, PrecisionTypes<G, D>, PrecisionTypes<G>>>>;

/// The element types of a group, as a value: see Precision.
struct ElementTypes {
    ElementType gather;
    ElementType gradient;
    ElementType reduction;
    ElementType master;

    friend constexpr bool operator==(const ElementTypes&, const ElementTypes&) noexcept = default;
};

template <class Precision>
inline constexpr ElementTypes element_types{
    element_type_of<typename Precision::Gather>, element_type_of<typename Precision::Gradient>,
    element_type_of<typename Precision::Reduction>, element_type_of<typename Precision::Master>};

/// What is gathered with elements of type T, if they are codes.
template <class T>
inline constexpr CodeSizes code_sizes = [] {
    CodeSizes codes;
    if constexpr (is_coded<T>) {
        codes = {true, CodeFormat<T>::block};
    }
    return codes;
}();

/// Whether a group can omit its master weights: updates and states then keep the same arithmetic.
template <class Precision>
inline constexpr bool can_drop_master =
    Precision::has_master && !Precision::gathers_codes &&
    std::is_same_v<Arithmetic<typename Precision::Gather>, Arithmetic<typename Precision::Master>>;

/// Whether a group can keep its master weights as the lower halves of fp32 numbers.
template <class Precision>
inline constexpr bool can_split_master =
    can_drop_master<Precision>&& std::is_same_v<typename Precision::Master, float>&&
        element_type_of<typename Precision::Gather> == ElementType::bf16;

/// What follows from the element types of a group.
struct PrecisionValues : ElementTypes {
    ElementSizes sizes;     ///< where it keeps masters, if it has some
    std::size_t narrowest;  ///< bytes
    bool has_master;
    bool drops_master;  ///< can do without
    bool splits_master;
    bool opaque;

    friend constexpr bool operator==(const PrecisionValues&, const PrecisionValues&) noexcept = default;

    /// Returns the sizes with this choice of master weights.
    constexpr ElementSizes sizes_with(MasterWeights weights) const noexcept {
        ElementSizes its = sizes;
        its.splits_master = weights == MasterWeights::split;
        if (its.splits_master) { its.master = sizeof(std::uint16_t); }
        its.has_master = has_master && weights != MasterWeights::none;
        return its;
    }
};
template <class Precision>
inline constexpr PrecisionValues precision_values{
    element_types<Precision>,
    {sizeof(typename Precision::Gather), sizeof(typename Precision::Gradient), sizeof(typename Precision::Reduction),
     sizeof(typename Precision::Master), sizeof(Arithmetic<typename Precision::Master>), Precision::has_master,
     Precision::reduces_in_place, false,
     !std::is_same_v<typename Precision::Reduction, Arithmetic<typename Precision::Reduction>>,
     code_sizes<typename Precision::Gather>},
    Precision::narrowest,
    Precision::has_master,
    can_drop_master<Precision>,
    can_split_master<Precision>,
    is_opaque<typename Precision::Gather>};

}  // namespace shardkit::detail

namespace shardkit {

/// The element types of a group's buffers.
/// Gather:    windows show it and all-gathers carry it. With e4m3 or block_int8, codes and their scales.
/// Gradient:  the backward pass writes it and reductions carry it.
/// Reduction: gradients are summed over ranks in it, and kept in it once reduced.
/// Master:    the optimizer updates it; a separate shard exists only where it differs from Gather.
template <FloatingElement Gather, FloatingElement Gradient = Gather, FloatingElement Reduction = Arithmetic<Gradient>,
          FloatingElement Master = Arithmetic<Gather>>
using Precision = detail::ShortestPrecision<Gather, Gradient, Reduction, Master>;

/// The usual precision: fp64 and fp32 throughout; bf16 and fp16 with fp32 reduction and fp32 master weights.
template <FloatingElement E>
using DefaultPrecision = Precision<E>;

/// Lists the precisions that a compiled core has: see SHARDKIT_COMPILED_PRECISIONS.
template <class... P>
struct Precisions {};

/// 16-bit parameters, gradients and reductions with fp32 master weights, as in llm.c. Gradients are summed in 16
/// bits, in place; DefaultPrecision sums them in fp32, which costs 4 bytes more for each element that a rank reduces.
template <FloatingElement E>
requires(sizeof(E) == 2) using Reduce16 = Precision<E, E, E, float>;

}  // namespace shardkit
