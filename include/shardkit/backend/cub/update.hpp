// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include <shardkit/backend/cub/block_update.hpp>
#include <shardkit/backend/cub/coded_update.hpp>
#include <shardkit/backend/cub/span_walk.hpp>
#include <shardkit/backend/cub/updated_parameters.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/core/codes.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/stochastic_rounding.hpp>
#include <shardkit/kernels/state_storage.hpp>
#include <shardkit/kernels/update.hpp>

namespace shardkit::gpu::detail {

/// Makes one step of an optimizer over the elements in ranges; see UpdateSpans for the pointers.
/// Cost:  accesses of 16 bytes where the spans agree in alignment.
template <class Update, FloatingElement Master, FloatingElement Gather, FloatingElement Gradient,
          std::size_t StateCount, class Storage = shardkit::detail::FullStates>
struct UpdatePass {
    using A = Arithmetic<Master>;
    static constexpr bool rounds_states = Storage::format != StateFormat::full && StateCount > 0;
    using State = std::conditional_t<rounds_states, bf16, A>;
    static constexpr std::size_t lanes = lanes_for<Master, Gather, Gradient, State>;
    static constexpr std::size_t vectors_in_turn = 2;
    static constexpr unsigned least_blocks = 0;
    struct NoDraws {};
    using StateDraws = std::conditional_t<rounds_states, rules::UpdateDraws, NoDraws>;

    UpdatedParameters<Master, Gather> parameters;
    const Gradient* gradient;
    std::array<State*, StateCount> states;
    UpdateChoice<Update> choice;
    [[no_unique_address]] StateDraws state_draws;
    Tiling<lanes, vectors_in_turn> tiling;

    /// @pre the sizes agree
    static UpdatePass of(const UpdateChoice<Update>& choice, const UpdatedParameters<Master, Gather>& parameters,
                         const rules::UpdateSpans<Master, Gather, Gradient, StateCount, Storage>& spans) {
        return [&]<std::size_t... S>(std::index_sequence<S...>) {
            UpdatePass pass{
                parameters,
                spans.gradient.data(),
                {spans.states[S].data()...},
                choice,
                {},
                tile<lanes, vectors_in_turn>(choice.ranges.count == 0 ? 0 : spans.master.size(), spans.master.data(),
                                             parameters.gathered, spans.gradient.data(), parameters.rest(),
                                             spans.states[S].data()...)};
            if constexpr (rounds_states) { pass.state_draws = spans.state_draws; }
            return pass;
        }
        (std::make_index_sequence<StateCount>{});
    }

    constexpr void operator()(std::uint64_t index) const {
        for_each_pack_in_turn(tiling, index, choice.ranges, [&](const rules::UpdateRange& range) {
            return Step{*this, choice.updates + range.update, range.element - range.begin, choice.skipped()};
        });
    }

  private:
    template <std::size_t N>
    struct Loaded {
        AlignedPack<Gradient, N> gradient;
        AlignedPack<Master, N> master;
        AlignedPack<std::uint16_t, N> rest;
        std::array<AlignedPack<State, N>, StateCount> states;
    };

    /// Updates the elements of one range.
    struct Step {
        const UpdatePass& pass;
        const Update* constants;
        std::uint64_t element;  ///< number of the element at position 0, even if that is outside
        bool skipped;

        template <std::size_t N>
        constexpr Loaded<N> load(std::uint64_t position) const {
            return [&]<std::size_t... S>(std::index_sequence<S...>) {
                return Loaded<N>{detail::load<N>(pass.gradient + position),
                                 detail::load<N>(pass.parameters.master + position),
                                 pass.parameters.template load_rest<N>(position),
                                 {detail::load<N>(pass.states[S] + position)...}};
            }
            (std::make_index_sequence<StateCount>{});
        }
        template <std::size_t N>
        constexpr void finish(std::uint64_t position, Loaded<N> of) const {
            if (!skipped) { apply<N>(position, of, std::make_index_sequence<StateCount>{}); }
        }

      private:
        template <std::size_t N, std::size_t... S>
        constexpr void apply(std::uint64_t position, Loaded<N>& of, std::index_sequence<S...>) const {
            const auto update = functor_of(*in_memory(constants));
            if constexpr (rounds_states) {
                const auto draws = detail::state_draws<StateCount>(pass.state_draws);
                const auto updated = [&](std::size_t i) {
                    A parameter = pass.parameters.value(of.master.lane[i], of.rest.lane[i]);
                    std::array<A, StateCount> values{converted<A>(of.states[S].lane[i])...};
                    update(parameter, values[S]..., converted<A>(of.gradient.lane[i]));
                    const std::array<std::uint32_t, draws.size()> drawn = drawn_for(draws, element + position + i);
                    ((of.states[S].lane[i] = rules::round_stochastically<State>(
                          values[S], shardkit::detail::StateDraws::of_state(drawn[S / 2], S, 16))),
                     ...);
                    return parameter;
                };
                pass.parameters.round(of.master, of.rest, element + position, updated);
            } else {
                const auto updated = [&](std::size_t i) {
                    A parameter = pass.parameters.value(of.master.lane[i], of.rest.lane[i]);
                    update(parameter, of.states[S].lane[i]..., converted<A>(of.gradient.lane[i]));
                    return parameter;
                };
                pass.parameters.round(of.master, of.rest, element + position, updated);
            }
            const std::uint64_t to = anew(position);
            pass.parameters.write(of.master, of.rest, to);
            (store<N>(of.states[S], pass.states[S] + to), ...);
        }
    };
};

/// The pass over states in `Storage`, as a value's type.
template <class Update, class Master, class Gather, class Gradient, std::size_t StateCount, class Storage>
constexpr auto update_pass_type() {
    if constexpr (shardkit::detail::is_coded<Gather>) {
        using Pass =
            typename decltype(update_pass_type<Update, Master, Master, Gradient, StateCount, Storage>())::type;
        return std::type_identity<CodedUpdatePass<Pass, Master, Gather>>{};
    } else if constexpr (StateCount > 0 && Storage::format == StateFormat::block8) {
        return std::type_identity<BlockUpdatePass<Update, Master, Gather, Gradient, StateCount, Storage>>{};
    } else {
        return std::type_identity<UpdatePass<Update, Master, Gather, Gradient, StateCount, Storage>>{};
    }
}

/// Makes the pass that `update` launches.
template <class Update, FloatingElement Master, FloatingElement Gather, FloatingElement Gradient,
          std::size_t StateCount, class Storage>
auto update_pass(std::span<const rules::UpdateRange> ranges, const Update* updates, const std::uint32_t* skip,
                 const rules::UpdateSpans<Master, Gather, Gradient, StateCount, Storage>& spans) {
    using Pass = typename decltype(update_pass_type<Update, Master, Gather, Gradient, StateCount, Storage>())::type;
    const bool writes_gathered = !std::same_as<Master, Gather> || !spans.gathered.empty();
    if constexpr (shardkit::detail::is_coded<Gather>) {
        const auto masters = shardkit::detail::without_gathered(spans);
        return Pass::of(update_pass(ranges, updates, skip, masters), spans);
    } else {
        UpdatedParameters<Master, Gather> parameters{
            spans.master.data(), writes_gathered ? spans.gathered.data() : nullptr, {}};
        if constexpr (sizeof(Master) == 2) {
            parameters.halves = {spans.draws, spans.rest.empty() ? nullptr : spans.rest.data()};
        }
        return Pass::of({{ranges.data(), static_cast<std::uint32_t>(ranges.size())}, updates, skip}, parameters,
                        spans);
    }
}

}  // namespace shardkit::gpu::detail
