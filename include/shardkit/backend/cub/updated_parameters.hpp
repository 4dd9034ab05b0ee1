// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <shardkit/backend/cub/span_walk.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/split_float.hpp>
#include <shardkit/core/stochastic_rounding.hpp>
#include <shardkit/kernels/state_storage.hpp>
#include <shardkit/kernels/update.hpp>

namespace shardkit::gpu::detail {

/// Where updated parameters go. `gathered` is null if the master itself is gathered.
template <FloatingElement Master, FloatingElement Gather>
struct UpdatedParameters {
    using A = Arithmetic<Master>;
    static constexpr bool may_draw = sizeof(Master) == 2;
    /// What a Master of 16 bits may have besides.
    struct Halves {
        rules::UpdateDraws draws;
        std::uint16_t* rest;  ///< null: the master is no half of a number
    };
    struct NoHalves {};

    Master* master;
    Gather* gathered;
    [[no_unique_address]] std::conditional_t<may_draw, Halves, NoHalves> halves;

    /// Returns the masters' lower halves, null where there are none.
    constexpr std::uint16_t* rest() const {
        if constexpr (may_draw) { return halves.rest; }
        return nullptr;
    }
    constexpr bool split() const { return rest() != nullptr; }
    /// Loads the rest of `N` masters, zeros where there is none.
    template <std::size_t N>
    constexpr AlignedPack<std::uint16_t, N> load_rest(std::uint64_t position) const {
        if constexpr (may_draw) {
            if (halves.rest != nullptr) { return load<N>(halves.rest + position); }
        }
        return {};
    }
    /// Returns a master in the arithmetic type.
    constexpr A value(Master master_bits, std::uint16_t rest) const {
        if constexpr (may_draw) {
            if (split()) {
                return shardkit::detail::SplitFloat::joined(std::bit_cast<std::uint16_t>(master_bits), rest);
            }
        }
        return converted<A>(master_bits);
    }
    /// Rounds `N` values, made by updated(i), to the master's type. `element`: the number of the first one.
    template <std::size_t N, class Updated>
    constexpr void round(AlignedPack<Master, N>& to, AlignedPack<std::uint16_t, N>& rest, std::uint64_t element,
                         const Updated& updated) const {
        if constexpr (may_draw) {
            if (split()) {
                for (std::size_t i = 0; i < N; ++i) {
                    const float value = updated(i);
                    to.lane[i] = std::bit_cast<Master>(shardkit::detail::SplitFloat::upper(value));
                    rest.lane[i] = shardkit::detail::SplitFloat::lower(value);
                }
                return;
            }
            if (const rules::UpdateDraws& draws = halves.draws; draws.steps != nullptr) {
                const shardkit::detail::PackDraws<N> draw(draws.seed, *in_memory(draws.steps), element);
                for (std::size_t i = 0; i < N; ++i) {
                    to.lane[i] = rules::round_stochastically<Master>(updated(i), draw[i]);
                }
                return;
            }
        }
        for (std::size_t i = 0; i < N; ++i) { to.lane[i] = converted<Master>(updated(i)); }
    }
    template <std::size_t N>
    constexpr void write(const AlignedPack<Master, N>& pack, const AlignedPack<std::uint16_t, N>& rest,
                         std::uint64_t position) const {
        store<N>(pack, master + position);
        if constexpr (may_draw) {
            if (split()) { store<N>(rest, halves.rest + position); }
        }
        if (gathered != nullptr) { store<N>(converted_pack<Gather>(pack), gathered + position); }
    }
};

/// Returns what a thread keeps of an update: of a KnownRuleUpdate what computes, since nvcc needs more registers and
/// narrower loads with the bytes that are only there to make all rules' updates as large.
template <class Update>
constexpr const auto& functor_of(const Update& update) {
    if constexpr (requires { typename Update::Functor; }) {
        return static_cast<const typename Update::Functor&>(update);
    } else {
        return update;
    }
}

/// Which updates a pass makes: of elements in `ranges`; `skip` is null if a step is never skipped.
template <class Update>
struct UpdateChoice {
    RangeTable<rules::UpdateRange> ranges;
    const Update* updates;
    const std::uint32_t* skip;

    constexpr bool skipped() const { return skip != nullptr && *in_memory(skip) != 0; }
};

/// Makes what decides the rounding of `States` states, a pair at a time.
template <std::size_t States>
constexpr auto state_draws(const rules::UpdateDraws& draws) {
    std::array<shardkit::detail::StateDraws, (States + 1) / 2> all{};
    for (std::size_t pair = 0; pair < all.size(); ++pair) {
        all[pair] = {draws.seed, *in_memory(draws.steps), static_cast<std::uint32_t>(pair)};
    }
    return all;
}
/// Returns what is drawn for an element's states.
template <std::size_t Pairs>
constexpr std::array<std::uint32_t, Pairs> drawn_for(const std::array<shardkit::detail::StateDraws, Pairs>& draws,
                                                     std::uint64_t element) {
    std::array<std::uint32_t, Pairs> drawn{};
    for (std::size_t pair = 0; pair < Pairs; ++pair) { drawn[pair] = draws[pair](element); }
    return drawn;
}

}  // namespace shardkit::gpu::detail
