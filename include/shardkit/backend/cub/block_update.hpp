// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <shardkit/backend/cub/span_walk.hpp>
#include <shardkit/backend/cub/updated_parameters.hpp>
#include <shardkit/core/block8.hpp>
#include <shardkit/core/codes.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/kernels/update.hpp>

namespace shardkit::gpu::detail {

/// Makes one step of an optimizer whose states are blocks of 8 bits. `sharers` adjacent threads share a block: each
/// keeps a vector of it in registers while they find the largest magnitudes by shuffles. On the host the first thread
/// does the work of all.
/// @pre a block has elements of one range at most
template <class Update, FloatingElement Master, FloatingElement Gather, FloatingElement Gradient,
          std::size_t StateCount, class Storage>
struct BlockUpdatePass {
    static constexpr std::size_t lanes = 4;
    static constexpr std::size_t vectors_in_turn = 2;
    static constexpr std::uint64_t sharers = Block8::block / lanes;
    static_assert(warp % sharers == 0);
    static constexpr unsigned least_blocks = sizeof(Master) == 2 ? 4 : 0;

    UpdatedParameters<Master, Gather> parameters;
    const Gradient* gradient;
    std::array<std::uint8_t*, StateCount> codes;
    std::array<float*, StateCount> scales;
    UpdateChoice<Update> choice;
    rules::UpdateDraws state_draws;
    Tiling<lanes, vectors_in_turn> tiling;  ///< packs are counted from the starts of the spans

    /// @pre the sizes agree
    static BlockUpdatePass of(const UpdateChoice<Update>& choice, const UpdatedParameters<Master, Gather>& parameters,
                              const rules::UpdateSpans<Master, Gather, Gradient, StateCount, Storage>& spans) {
        return [&]<std::size_t... S>(std::index_sequence<S...>) {
            return BlockUpdatePass{
                parameters,
                spans.gradient.data(),
                {spans.states[S].codes.data()...},
                {spans.states[S].scales.data()...},
                choice,
                spans.state_draws,
                from_start(tile<lanes, vectors_in_turn>(
                    choice.ranges.count == 0 ? 0 : spans.master.size(), spans.master.data(), spans.gradient.data(),
                    parameters.gathered, parameters.rest(), spans.states[S].codes.data()...))};
        }
        (std::make_index_sequence<StateCount>{});
    }

    constexpr void operator()(std::uint64_t index) const {
        if (choice.skipped()) { return; }
        std::uint32_t at = choice.ranges.first_after(tiling.chunk(index).begin);
        std::uint64_t place = tiling.first_place(index);
        SHARDKIT_UNROLL(1)
        do {
            const std::uint64_t position = tiling.next_vector(place).begin;
            rules::UpdateRange range;
            // Without one too: all threads of a warp meet in the shuffles.
            if (!choice.ranges.read_next(position / Block8::block * Block8::block, at, range)) { range = {}; }
            update_block(range, position);
        } while (tiling.has_next(place));
    }

  private:
    using States = std::make_index_sequence<StateCount>;
    /// What a range updates of a thread's elements of a block, in few registers.
    struct Updated {
        std::uint32_t lanes_and_block = 0;  ///< a bit for each lane, and above them one for the block
        std::uint32_t update;
        std::uint64_t element;  ///< number of the thread's first element, even if that is outside

        constexpr Updated(const rules::UpdateRange& range, std::uint64_t position)
            : update(range.update), element(range.element - range.begin + position) {
            const std::uint64_t block = position / Block8::block * Block8::block;
            if (range.begin >= block + Block8::block || range.end <= block) { return; }
            lanes_and_block = 1U << lanes;
            for (std::uint32_t i = 0; i < lanes; ++i) {
                if (range.begin <= position + i && position + i < range.end) { lanes_and_block |= 1U << i; }
            }
        }
        constexpr bool any_of_block() const { return lanes_and_block != 0; }
        constexpr bool all() const { return lanes_and_block == (2U << lanes) - 1; }
        constexpr bool has(std::size_t lane) const { return (lanes_and_block >> lane & 1U) != 0; }
    };
    /// A thread's elements of a block, with zeros for those that are not updated.
    struct Share {
        AlignedPack<Master, lanes> master;
        AlignedPack<std::uint16_t, lanes> rest;
        std::array<std::array<float, lanes>, StateCount> states;
    };

    /// `position` is that of a thread's first element.
    constexpr void update_block(const rules::UpdateRange& range, std::uint64_t position) const {
#ifdef __CUDA_ARCH__
        const Updated of(range, position);
        Share share = updated(of, position, States{});
        std::array<float, StateCount> largest{};
        for (std::size_t s = 0; s < StateCount; ++s) {
            largest[s] = largest_of_threads<sharers>(largest_of(share, s));
        }
        write(of, anew(position), share, largest);
#else
        if (position % Block8::block != 0) { return; }
        std::array<Share, sharers> shares{};
        std::array<float, StateCount> largest{};
        for (std::size_t t = 0; t < shares.size(); ++t) {
            const std::uint64_t at = position + t * lanes;
            shares[t] = updated(Updated(range, at), at, States{});
            for (std::size_t s = 0; s < StateCount; ++s) {
                largest[s] = shardkit::detail::larger_magnitude(largest[s], largest_of(shares[t], s));
            }
        }
        for (std::size_t t = 0; t < shares.size(); ++t) {
            const std::uint64_t at = position + t * lanes;
            write(Updated(range, at), at, shares[t], largest);
        }
#endif
    }
    template <class T>
    constexpr AlignedPack<T, lanes> read(const Updated& of, const T* from) const {
        if (tiling.aligned && of.all()) { return load<lanes>(from); }
        AlignedPack<T, lanes> pack{};
        for (std::size_t i = 0; i < lanes; ++i) {
            if (of.has(i)) { pack.lane[i] = in_memory(from)[i]; }
        }
        return pack;
    }
    template <class T>
    constexpr void put(const Updated& of, const AlignedPack<T, lanes>& pack, T* to) const {
        if (tiling.aligned && of.all()) { return store<lanes>(pack, to); }
        for (std::size_t i = 0; i < lanes; ++i) {
            if (of.has(i)) { in_memory(to)[i] = pack.lane[i]; }
        }
    }

    template <std::size_t... S>
    constexpr Share updated(const Updated& of, std::uint64_t position, std::index_sequence<S...> /*states*/) const {
        Share share{};
        if (!of.any_of_block()) { return share; }
        const auto gradients = read(of, gradient + position);
        share.master = read(of, parameters.master + position);
        if constexpr (UpdatedParameters<Master, Gather>::may_draw) {
            if (parameters.split()) { share.rest = read(of, parameters.halves.rest + position); }
        }
        const std::array<AlignedPack<std::uint8_t, lanes>, StateCount> code{read(of, codes[S] + position)...};
        const std::array<float, StateCount> scale{in_memory(scales[S])[position / Block8::block]...};
        const auto update = functor_of(in_memory(choice.updates)[of.update]);
        parameters.round(share.master, share.rest, of.element, [&](std::size_t i) {
            if (!of.has(i)) { return 0.0F; }
            float parameter = parameters.value(share.master.lane[i], share.rest.lane[i]);
            ((share.states[S][i] = Block8::decode<Storage::is_square(S)>(std::uint32_t{code[S].lane[i]}, scale[S])),
             ...);
            update(parameter, share.states[S][i]..., converted<float>(gradients.lane[i]));
            return parameter;
        });
        return share;
    }
    static constexpr float largest_of(const Share& share, std::size_t state) {
        return shardkit::detail::largest_magnitude(share.states[state].data(), lanes);
    }
    constexpr void write(const Updated& of, std::uint64_t position, const Share& share,
                         const std::array<float, StateCount>& largest) const {
        if (!of.any_of_block()) { return; }
        put(of, share.master, parameters.master + position);
        if constexpr (UpdatedParameters<Master, Gather>::may_draw) {
            if (parameters.split()) { put(of, share.rest, parameters.halves.rest + position); }
        }
        if (parameters.gathered != nullptr) {
            put(of, converted_pack<Gather>(share.master), parameters.gathered + position);
        }
        write_states(of, position, share, largest, States{});
    }
    template <std::size_t... S>
    constexpr void write_states(const Updated& of, std::uint64_t position, const Share& share,
                                const std::array<float, StateCount>& largest, std::index_sequence<S...>) const {
        std::array<AlignedPack<std::uint8_t, lanes>, StateCount> code{};
        const std::array<float, StateCount> scale{Block8::scale(largest[S])...};
        const std::array<float, StateCount> inverse{Block8::inverse(scale[S])...};
        const auto draws = detail::state_draws<StateCount>(state_draws);
        for (std::size_t i = 0; i < lanes; ++i) {
            const std::array<std::uint32_t, draws.size()> drawn = drawn_for(draws, of.element + i);
            ((code[S].lane[i] = static_cast<std::uint8_t>(Block8::encode<Storage::is_square(S)>(
                  share.states[S][i], inverse[S],
                  shardkit::detail::StateDraws::of_state(drawn[S / 2], S,
                                                         Block8::drawn_bits<Storage::is_square(S)>)))),
             ...);
        }
        (put(of, code[S], codes[S] + position), ...);
        if (position % Block8::block == 0) { ((in_memory(scales[S])[position / Block8::block] = scale[S]), ...); }
    }
};

}  // namespace shardkit::gpu::detail
