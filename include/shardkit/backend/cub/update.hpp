// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include <shardkit/backend/cub/launch.hpp>
#include <shardkit/backend/cub/span_walk.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/core/stochastic_rounding.hpp>
#include <shardkit/optim/update.hpp>

// `launch(count, work, kernel)` runs work(i) for each i in [0, count), in any order: DeviceLaunch, or a test's loop.

namespace shardkit::gpu::detail {

/// Makes one step of an optimizer over the elements in `ranges`; see UpdateSpans for the pointers.
/// `gathered` is null if the master itself is gathered, `skip` if a step is never skipped.
/// Cost:  accesses of 16 bytes where the spans agree in alignment.
template <class Update, FloatingElement Master, FloatingElement Gather, FloatingElement Gradient,
          std::size_t StateCount>
struct UpdatePass {
    using A = Arithmetic<Master>;
    static constexpr std::size_t lanes = lanes_for<Master, Gather, Gradient, A>;
    static constexpr bool may_draw = sizeof(Master) == 2;
    struct NoDraws {};
    using Draws = std::conditional_t<may_draw, UpdateDraws, NoDraws>;

    Master* master;
    Gather* gathered;
    const Gradient* gradient;
    std::array<A*, StateCount> states;
    const UpdateRange* ranges;
    std::size_t range_count;
    const Update* updates;
    const std::uint32_t* skip;
    [[no_unique_address]] Draws draws;
    Tiling<lanes> tiling;

    static constexpr Draws draws_of(const UpdateDraws& draws) {
        if constexpr (may_draw) {
            return draws;
        } else {
            return {};
        }
    }
    constexpr void operator()(std::uint64_t index) const {
        for_each_pack_in(tiling, index, ranges, range_count, *this);
    }

    template <class Take>
    constexpr void in(const UpdateRange& range, const Take& take) const {
        take(Step{*this, updates + range.update, range.element - range.begin, skip != nullptr && *skip != 0});
    }

  private:
    template <std::size_t N>
    struct Loaded {
        AlignedPack<Gradient, N> gradient;
        AlignedPack<Master, N> master;
        std::array<AlignedPack<A, N>, StateCount> states;
    };

    /// Updates the elements of one range.
    struct Step {
        const UpdatePass& pass;
        const Update* constants;
        std::uint64_t element;  ///< number of the element at position 0, even if that is outside
        bool skipped;

        template <std::size_t N>
        constexpr Loaded<N> load(std::uint64_t position) const {
            return load<N>(position, std::make_index_sequence<StateCount>{});
        }
        template <std::size_t N>
        constexpr void finish(std::uint64_t position, Loaded<N> of) const {
            if (!skipped) { apply<N>(position, of, std::make_index_sequence<StateCount>{}); }
        }

      private:
        template <std::size_t N, std::size_t... S>
        constexpr Loaded<N> load(std::uint64_t position, std::index_sequence<S...>) const {
            return {detail::load<N>(pass.gradient + position),
                    detail::load<N>(pass.master + position),
                    {detail::load<N>(pass.states[S] + position)...}};
        }
        template <std::size_t N, std::size_t... S>
        constexpr void apply(std::uint64_t position, Loaded<N>& of, std::index_sequence<S...>) const {
            const Update update = *constants;
            const auto updated = [&](std::size_t i) {
                A parameter = converted<A>(of.master.lane[i]);
                update(parameter, of.states[S].lane[i]..., converted<A>(of.gradient.lane[i]));
                return parameter;
            };
            if constexpr (may_draw) {
                if (pass.draws.steps != nullptr) {
                    shardkit::detail::ElementDraws draw(pass.draws.seed, *pass.draws.steps);
                    for (std::size_t i = 0; i < N; ++i) {
                        of.master.lane[i] = round_stochastically<Master>(updated(i), draw(element + position + i));
                    }
                } else {
                    for (std::size_t i = 0; i < N; ++i) { of.master.lane[i] = converted<Master>(updated(i)); }
                }
            } else {
                for (std::size_t i = 0; i < N; ++i) { of.master.lane[i] = converted<Master>(updated(i)); }
            }
            store<N>(of.master, pass.master + position);
            (store<N>(of.states[S], pass.states[S] + position), ...);
            if (pass.gathered != nullptr) { store<N>(converted_pack<Gather>(of.master), pass.gathered + position); }
        }
    };
};

/// Makes the pass that `update` launches, and checks the sizes.
template <class Update, FloatingElement Master, FloatingElement Gather, FloatingElement Gradient,
          std::size_t StateCount>
auto update_pass(std::span<const UpdateRange> ranges, const Update* updates, const std::uint32_t* skip,
                 const UpdateSpans<Master, Gather, Gradient, StateCount>& spans,
                 SourceLocation where = SourceLocation::current()) {
    using Pass = UpdatePass<Update, Master, Gather, Gradient, StateCount>;
    require_size("update", "gradient", spans.gradient.size(), spans.master.size(), where);
    for (const auto& state : spans.states) {
        require_size("update", "a state", state.size(), spans.master.size(), where);
    }
    const bool writes_gathered = !std::same_as<Master, Gather> || !spans.gathered.empty();
    if (writes_gathered) { require_size("update", "gathered", spans.gathered.size(), spans.master.size(), where); }
    Gather* const gathered = writes_gathered ? spans.gathered.data() : nullptr;
    return [&]<std::size_t... S>(std::index_sequence<S...>) {
        return Pass{spans.master.data(),
                    gathered,
                    spans.gradient.data(),
                    {spans.states[S].data()...},
                    ranges.data(),
                    ranges.size(),
                    updates,
                    skip,
                    Pass::draws_of(spans.draws),
                    tile<Pass::lanes>(ranges.empty() ? 0 : spans.master.size(), spans.master.data(), gathered,
                                      spans.gradient.data(), spans.states[S].data()...)};
    }
    (std::make_index_sequence<StateCount>{});
}

/// Makes one step of an optimizer over the elements in `ranges`, in one launch. Element i of a range is updated by
/// updates[range.update]. Does nothing if *skip is not 0. Elements outside of all ranges are not touched.
/// @pre  ranges are sorted, disjoint and inside the spans
template <class Update, FloatingElement Master, FloatingElement Gather, FloatingElement Gradient,
          std::size_t StateCount, class Launch>
void update(const Launch& launch, std::span<const UpdateRange> ranges, const Update* updates,
            const std::uint32_t* skip, const UpdateSpans<Master, Gather, Gradient, StateCount>& spans,
            SourceLocation where = SourceLocation::current()) {
    const auto pass = update_pass(ranges, updates, skip, spans, where);
    launch(pass.tiling.indices(), pass, "update");
}

}  // namespace shardkit::gpu::detail
