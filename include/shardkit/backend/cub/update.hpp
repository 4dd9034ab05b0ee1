// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include <shardkit/backend/cub/launch.hpp>
#include <shardkit/backend/cub/span_walk.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/core/block8.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/core/split_float.hpp>
#include <shardkit/core/stochastic_rounding.hpp>
#include <shardkit/optim/state_storage.hpp>
#include <shardkit/optim/update.hpp>

// `launch(count, work, kernel)` runs work(i) for each i in [0, count), in any order: DeviceLaunch, or a test's loop.

namespace shardkit::gpu::detail {

/// Where updated parameters go. `gathered` is null if the master itself is gathered.
template <FloatingElement Master, FloatingElement Gather>
struct UpdatedParameters {
    using A = Arithmetic<Master>;
    static constexpr bool may_draw = sizeof(Master) == 2;
    /// What a Master of 16 bits may have besides.
    struct Halves {
        UpdateDraws draws;
        std::uint16_t* rest;  ///< null: the master is no half of a number
    };
    struct NoHalves {};

    Master* master;
    Gather* gathered;
    [[no_unique_address]] std::conditional_t<may_draw, Halves, NoHalves> halves;

    constexpr bool split() const {
        if constexpr (may_draw) { return halves.rest != nullptr; }
        return false;
    }
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
            if (const UpdateDraws& draws = halves.draws; draws.steps != nullptr) {
                shardkit::detail::ElementDraws draw(draws.seed, *draws.steps);
                for (std::size_t i = 0; i < N; ++i) {
                    to.lane[i] = round_stochastically<Master>(updated(i), draw(element + i));
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

/// Which updates a pass makes: of elements in `ranges`; `skip` is null if a step is never skipped.
template <class Update>
struct UpdateChoice {
    const UpdateRange* ranges;
    std::size_t range_count;
    const Update* updates;
    const std::uint32_t* skip;

    constexpr bool skipped() const { return skip != nullptr && *skip != 0; }
};

/// Makes what decides the rounding of `States` states, a pair at a time.
template <std::size_t States>
constexpr auto state_draws(const UpdateDraws& draws) {
    std::array<shardkit::detail::StateDraws, (States + 1) / 2> all{};
    for (std::size_t pair = 0; pair < all.size(); ++pair) {
        all[pair] = {draws.seed, *draws.steps, static_cast<std::uint32_t>(pair)};
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
/// Returns 16 random bits for state S, of those that `drawn` has of its pair.
template <std::size_t S>
constexpr std::uint32_t state_draw(std::uint32_t drawn) {
    std::uint32_t own = 0;
    shardkit::detail::StateDraws::of_state(drawn, S, own);
    return own;
}

/// Makes one step of an optimizer over the elements in ranges; see UpdateSpans for the pointers.
/// Cost:  accesses of 16 bytes where the spans agree in alignment.
template <class Update, FloatingElement Master, FloatingElement Gather, FloatingElement Gradient,
          std::size_t StateCount, class Storage = shardkit::detail::FullStates>
struct UpdatePass {
    using A = Arithmetic<Master>;
    static constexpr bool rounds_states = Storage::format != StateFormat::full && StateCount > 0;
    using State = std::conditional_t<rounds_states, bf16, A>;
    static constexpr std::size_t lanes = lanes_for<Master, Gather, Gradient, State>;
    struct NoDraws {};
    using StateDraws = std::conditional_t<rounds_states, UpdateDraws, NoDraws>;

    UpdatedParameters<Master, Gather> parameters;
    const Gradient* gradient;
    std::array<State*, StateCount> states;
    UpdateChoice<Update> choice;
    [[no_unique_address]] StateDraws state_draws;
    Tiling<lanes> tiling;

    /// @pre the sizes agree
    static UpdatePass of(const UpdateChoice<Update>& choice, const UpdatedParameters<Master, Gather>& parameters,
                         const UpdateSpans<Master, Gather, Gradient, StateCount, Storage>& spans) {
        return [&]<std::size_t... S>(std::index_sequence<S...>) {
            UpdatePass pass{parameters,
                            spans.gradient.data(),
                            {spans.states[S].data()...},
                            choice,
                            {},
                            tile<lanes>(choice.range_count == 0 ? 0 : spans.master.size(), spans.master.data(),
                                        parameters.gathered, spans.gradient.data(), spans.states[S].data()...)};
            if constexpr (rounds_states) { pass.state_draws = spans.state_draws; }
            if (parameters.split() && elements_past_pack<lanes>(spans.rest.data()) != pass.tiling.shift) {
                pass.tiling = {pass.tiling.count, 0, false};
            }
            return pass;
        }
        (std::make_index_sequence<StateCount>{});
    }

    constexpr void operator()(std::uint64_t index) const {
        for_each_pack_in(tiling, index, choice.ranges, choice.range_count, *this);
    }

    template <class Take>
    constexpr void in(const UpdateRange& range, const Take& take) const {
        take(Step{*this, choice.updates + range.update, range.element - range.begin, choice.skipped()});
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
                    detail::load<N>(pass.parameters.master + position),
                    pass.parameters.template load_rest<N>(position),
                    {detail::load<N>(pass.states[S] + position)...}};
        }
        template <std::size_t N, std::size_t... S>
        constexpr void apply(std::uint64_t position, Loaded<N>& of, std::index_sequence<S...>) const {
            const Update update = *constants;
            if constexpr (rounds_states) {
                const auto draws = detail::state_draws<StateCount>(pass.state_draws);
                const auto updated = [&](std::size_t i) {
                    A parameter = pass.parameters.value(of.master.lane[i], of.rest.lane[i]);
                    std::array<A, StateCount> values{converted<A>(of.states[S].lane[i])...};
                    update(parameter, values[S]..., converted<A>(of.gradient.lane[i]));
                    const std::array<std::uint32_t, draws.size()> drawn = drawn_for(draws, element + position + i);
                    ((of.states[S].lane[i] = round_stochastically<State>(values[S], state_draw<S>(drawn[S / 2]))),
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
            pass.parameters.write(of.master, of.rest, position);
            (store<N>(of.states[S], pass.states[S] + position), ...);
        }
    };
};

/// How the blocks of a BlockUpdatePass are divided among indices: `sharers` adjacent ones share a block. `aligned`
/// says that packs may be used, counted from the starts of the spans.
struct BlockTiling {
    static constexpr std::size_t lanes = 4;
    static constexpr std::uint64_t sharers = Block8::block / lanes;

    std::uint64_t count;
    bool aligned;

    /// Returns the number of indices, a multiple of the warp size, so that all sharers of a block run.
    constexpr std::uint64_t indices() const noexcept {
        return (Block8::blocks(count) * sharers + warp - 1) / warp * warp;
    }
};

/// Makes one step of an optimizer whose states are blocks of 8 bits. Each thread keeps four elements of a block in
/// registers while the block's threads find the largest magnitudes by shuffles. On the host the first thread does the
/// work of all.
/// @pre a block has elements of one range at most
template <class Update, FloatingElement Master, FloatingElement Gather, FloatingElement Gradient,
          std::size_t StateCount, class Storage>
struct BlockUpdatePass {
    static constexpr std::size_t lanes = BlockTiling::lanes;

    UpdatedParameters<Master, Gather> parameters;
    const Gradient* gradient;
    std::array<std::uint8_t*, StateCount> codes;
    std::array<float*, StateCount> scales;
    UpdateChoice<Update> choice;
    UpdateDraws state_draws;
    BlockTiling tiling;

    /// @pre the sizes agree
    static BlockUpdatePass of(const UpdateChoice<Update>& choice, const UpdatedParameters<Master, Gather>& parameters,
                              const UpdateSpans<Master, Gather, Gradient, StateCount, Storage>& spans) {
        bool aligned = elements_past_pack<lanes>(spans.master.data()) == 0 &&
                       elements_past_pack<lanes>(spans.gradient.data()) == 0 &&
                       (parameters.gathered == nullptr || elements_past_pack<lanes>(parameters.gathered) == 0);
        aligned = aligned && (!parameters.split() || elements_past_pack<lanes>(spans.rest.data()) == 0);
        for (const Block8Span& state : spans.states) {
            aligned = aligned && elements_past_pack<lanes>(state.codes.data()) == 0;
        }
        return [&]<std::size_t... S>(std::index_sequence<S...>) {
            return BlockUpdatePass{parameters,
                                   spans.gradient.data(),
                                   {spans.states[S].codes.data()...},
                                   {spans.states[S].scales.data()...},
                                   choice,
                                   spans.state_draws,
                                   {choice.range_count == 0 ? 0 : spans.master.size(), aligned}};
        }
        (std::make_index_sequence<StateCount>{});
    }

    constexpr void operator()(std::uint64_t index) const {
        const std::uint64_t block = index / BlockTiling::sharers;
        [[maybe_unused]] const std::uint64_t thread = index % BlockTiling::sharers;
        const Range range = range_of(block);
#ifdef __CUDA_ARCH__
        Share share = updated(range, block, thread);
        std::array<float, StateCount> largest{};
        for (std::size_t s = 0; s < StateCount; ++s) { largest[s] = largest_of_block(largest_of(share, s)); }
        write(range, block, thread, share, largest);
#else
        if (thread != 0) { return; }
        std::array<Share, BlockTiling::sharers> shares{};
        std::array<float, StateCount> largest{};
        for (std::size_t t = 0; t < shares.size(); ++t) {
            shares[t] = updated(range, block, t);
            for (std::size_t s = 0; s < StateCount; ++s) {
                largest[s] = Block8::larger(largest[s], largest_of(shares[t], s));
            }
        }
        for (std::size_t t = 0; t < shares.size(); ++t) { write(range, block, t, shares[t], largest); }
#endif
    }

  private:
    /// The elements of a block that are updated; none where `end` is not above `begin`.
    struct Range {
        std::uint64_t begin;
        std::uint64_t end;
        std::uint64_t element;  ///< number of the element at position 0, even if that is outside
        std::uint32_t update;
    };
    /// A thread's elements of a block, with zeros for those that are not updated.
    struct Share {
        AlignedPack<Master, lanes> master;
        AlignedPack<std::uint16_t, lanes> rest;
        std::array<std::array<float, lanes>, StateCount> states;
    };

    constexpr Range range_of(std::uint64_t block) const {
        const std::uint64_t begin = block * Block8::block;
        const std::size_t at = first_ending_after(choice.ranges, choice.range_count, begin);
        if (at == choice.range_count || begin >= tiling.count || choice.skipped()) { return {}; }
        const UpdateRange range = choice.ranges[at];
        const std::uint64_t behind = begin + Block8::block;
        return {range.begin > begin ? range.begin : begin, range.end < behind ? range.end : behind,
                range.element - range.begin, range.update};
    }
    constexpr bool is_whole(const Range& range, std::uint64_t position) const {
        return tiling.aligned && range.begin <= position && position + lanes <= range.end;
    }
    template <class T>
    constexpr AlignedPack<T, lanes> read(const Range& range, const T* from, std::uint64_t position) const {
        if (is_whole(range, position)) { return load<lanes>(from + position); }
        AlignedPack<T, lanes> pack{};
        for (std::size_t i = 0; i < lanes; ++i) {
            if (range.begin <= position + i && position + i < range.end) { pack.lane[i] = from[position + i]; }
        }
        return pack;
    }
    template <class T>
    constexpr void put(const Range& range, const AlignedPack<T, lanes>& pack, T* to, std::uint64_t position) const {
        if (is_whole(range, position)) { return store<lanes>(pack, to + position); }
        for (std::size_t i = 0; i < lanes; ++i) {
            if (range.begin <= position + i && position + i < range.end) { to[position + i] = pack.lane[i]; }
        }
    }

    constexpr Share updated(const Range& range, std::uint64_t block, std::uint64_t thread) const {
        return updated(range, block, thread, std::make_index_sequence<StateCount>{});
    }
    template <std::size_t... S>
    constexpr Share updated(const Range& range, std::uint64_t block, std::uint64_t thread,
                            std::index_sequence<S...>) const {
        Share share{};
        const std::uint64_t position = block * Block8::block + thread * lanes;
        if (range.begin >= range.end) { return share; }
        const auto gradients = read(range, gradient, position);
        share.master = read(range, parameters.master, position);
        if constexpr (UpdatedParameters<Master, Gather>::may_draw) {
            if (parameters.split()) { share.rest = read(range, parameters.halves.rest, position); }
        }
        const std::array<AlignedPack<std::uint8_t, lanes>, StateCount> code{read(range, codes[S], position)...};
        const std::array<float, StateCount> scale{scales[S][block]...};
        const Update update = choice.updates[range.update];
        parameters.round(share.master, share.rest, range.element + position, [&](std::size_t i) {
            if (position + i < range.begin || position + i >= range.end) { return 0.0F; }
            float parameter = parameters.value(share.master.lane[i], share.rest.lane[i]);
            ((share.states[S][i] =
                  Block8::decode<Storage::is_square(S)>(static_cast<float>(code[S].lane[i]), scale[S])),
             ...);
            update(parameter, share.states[S][i]..., converted<float>(gradients.lane[i]));
            return parameter;
        });
        return share;
    }
    static constexpr float largest_of(const Share& share, std::size_t state) {
        float largest = 0;
        for (const float value : share.states[state]) { largest = Block8::larger(largest, value); }
        return largest;
    }
    constexpr void write(const Range& range, std::uint64_t block, std::uint64_t thread, const Share& share,
                         const std::array<float, StateCount>& largest) const {
        if (range.begin >= range.end) { return; }
        const std::uint64_t position = block * Block8::block + thread * lanes;
        put(range, share.master, parameters.master, position);
        if constexpr (UpdatedParameters<Master, Gather>::may_draw) {
            if (parameters.split()) { put(range, share.rest, parameters.halves.rest, position); }
        }
        if (parameters.gathered != nullptr) {
            put(range, converted_pack<Gather>(share.master), parameters.gathered, position);
        }
        write_states(range, block, thread, share, largest, std::make_index_sequence<StateCount>{});
    }
    template <std::size_t... S>
    constexpr void write_states(const Range& range, std::uint64_t block, std::uint64_t thread, const Share& share,
                                const std::array<float, StateCount>& largest, std::index_sequence<S...>) const {
        const std::uint64_t position = block * Block8::block + thread * lanes;
        std::array<AlignedPack<std::uint8_t, lanes>, StateCount> code{};
        const std::array<float, StateCount> inverse{Block8::inverse(largest[S])...};
        const auto draws = detail::state_draws<StateCount>(state_draws);
        for (std::size_t i = 0; i < lanes; ++i) {
            const std::array<std::uint32_t, draws.size()> drawn = drawn_for(draws, range.element + position + i);
            ((code[S].lane[i] = static_cast<std::uint8_t>(Block8::encode<Storage::is_square(S)>(
                  share.states[S][i], inverse[S], static_cast<float>(state_draw<S>(drawn[S / 2])) * 0x1p-16F))),
             ...);
        }
        (put(range, code[S], codes[S], position), ...);
        if (thread == 0) { ((scales[S][block] = Block8::scale(largest[S])), ...); }
    }
#ifdef __CUDA_ARCH__
    static __device__ float largest_of_block(float largest) {
        for (unsigned distance = BlockTiling::sharers / 2; distance > 0; distance /= 2) {
            largest = Block8::larger(largest, __shfl_xor_sync(0xffffffffU, largest, distance));
        }
        return largest;
    }
#endif
};

/// The pass over states in `Storage`.
template <class Update, class Master, class Gather, class Gradient, std::size_t StateCount, class Storage>
struct UpdatePassOf {
    using type = UpdatePass<Update, Master, Gather, Gradient, StateCount, Storage>;
};
template <class Update, class Master, class Gather, class Gradient, std::size_t StateCount, std::uint32_t Squares>
requires(StateCount > 0) struct UpdatePassOf<Update, Master, Gather, Gradient, StateCount,
                                             shardkit::detail::StateStorage<StateFormat::block8, Squares>> {
    using type = BlockUpdatePass<Update, Master, Gather, Gradient, StateCount,
                                 shardkit::detail::StateStorage<StateFormat::block8, Squares>>;
};

/// Makes the pass that `update` launches, and checks the sizes.
template <class Update, FloatingElement Master, FloatingElement Gather, FloatingElement Gradient,
          std::size_t StateCount, class Storage>
auto update_pass(std::span<const UpdateRange> ranges, const Update* updates, const std::uint32_t* skip,
                 const UpdateSpans<Master, Gather, Gradient, StateCount, Storage>& spans,
                 SourceLocation where = SourceLocation::current()) {
    using Pass = typename UpdatePassOf<Update, Master, Gather, Gradient, StateCount, Storage>::type;
    require_size("update", "gradient", spans.gradient.size(), spans.master.size(), where);
    for (const auto& state : spans.states) {
        require_size("update", "a state", state.size(), spans.master.size(), where);
    }
    const bool writes_gathered = !std::same_as<Master, Gather> || !spans.gathered.empty();
    if (writes_gathered) { require_size("update", "gathered", spans.gathered.size(), spans.master.size(), where); }
    UpdatedParameters<Master, Gather> parameters{
        spans.master.data(), writes_gathered ? spans.gathered.data() : nullptr, {}};
    if constexpr (sizeof(Master) == 2) {
        if (!spans.rest.empty()) { require_size("update", "rest", spans.rest.size(), spans.master.size(), where); }
        parameters.halves = {spans.draws, spans.rest.empty() ? nullptr : spans.rest.data()};
    }
    return Pass::of({ranges.data(), ranges.size(), updates, skip}, parameters, spans);
}

/// Makes one step of an optimizer over the elements in `ranges`, in one launch. Element i of a range is updated by
/// updates[range.update]. Does nothing if *skip is not 0. Elements outside of all ranges are not touched.
/// @pre  ranges are sorted, disjoint and inside the spans
template <class Update, FloatingElement Master, FloatingElement Gather, FloatingElement Gradient,
          std::size_t StateCount, class Storage, class Launch>
void update(const Launch& launch, std::span<const UpdateRange> ranges, const Update* updates,
            const std::uint32_t* skip, const UpdateSpans<Master, Gather, Gradient, StateCount, Storage>& spans,
            SourceLocation where = SourceLocation::current()) {
    const auto pass = update_pass(ranges, updates, skip, spans, where);
    launch(pass.tiling.indices(), pass, "update");
}

}  // namespace shardkit::gpu::detail
