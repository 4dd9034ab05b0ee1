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
#include <shardkit/optim/update.hpp>

namespace shardkit::gpu::detail {

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
    /// Of bf16 masters nvcc 13.0 otherwise keeps more of both of a thread's turns in registers, and an SM holds fewer
    /// threads. For sm_90 it would spill for one block more.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
    static constexpr unsigned least_blocks = sizeof(Master) == 2 ? 4 : 0;
#else
    static constexpr unsigned least_blocks = sizeof(Master) == 2 ? 3 : 0;
#endif

    UpdatedParameters<Master, Gather> parameters;
    const Gradient* gradient;
    std::array<std::uint8_t*, StateCount> codes;
    std::array<float*, StateCount> scales;
    UpdateChoice<Update> choice;
    rules::UpdateDraws state_draws;
    BlockTiling tiling;

    /// @pre the sizes agree
    static BlockUpdatePass of(const UpdateChoice<Update>& choice, const UpdatedParameters<Master, Gather>& parameters,
                              const rules::UpdateSpans<Master, Gather, Gradient, StateCount, Storage>& spans) {
        bool aligned = elements_past_pack<lanes>(spans.master.data()) == 0 &&
                       elements_past_pack<lanes>(spans.gradient.data()) == 0 &&
                       (parameters.gathered == nullptr || elements_past_pack<lanes>(parameters.gathered) == 0);
        aligned = aligned && (!parameters.split() || elements_past_pack<lanes>(spans.rest.data()) == 0);
        for (const rules::Block8Span& state : spans.states) {
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
                largest[s] = shardkit::detail::larger_magnitude(largest[s], largest_of(shares[t], s));
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
        const rules::UpdateRange range = choice.ranges[at];
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
        const std::array<float, StateCount> scale{Block8::scale(largest[S])...};
        const std::array<float, StateCount> inverse{Block8::inverse(scale[S])...};
        const auto draws = detail::state_draws<StateCount>(state_draws);
        for (std::size_t i = 0; i < lanes; ++i) {
            const std::array<std::uint32_t, draws.size()> drawn = drawn_for(draws, range.element + position + i);
            ((code[S].lane[i] = static_cast<std::uint8_t>(Block8::encode<Storage::is_square(S)>(
                  share.states[S][i], inverse[S],
                  shardkit::detail::StateDraws::of_state(drawn[S / 2], S,
                                                         Block8::drawn_bits<Storage::is_square(S)>)))),
             ...);
        }
        (put(range, code[S], codes[S], position), ...);
        if (thread == 0) { ((scales[S][block] = scale[S]), ...); }
    }
#ifdef __CUDA_ARCH__
    static __device__ float largest_of_block(float largest) {
        for (unsigned distance = BlockTiling::sharers / 2; distance > 0; distance /= 2) {
            largest = shardkit::detail::larger_magnitude(largest, __shfl_xor_sync(0xffffffffU, largest, distance));
        }
        return largest;
    }
#endif
};

}  // namespace shardkit::gpu::detail
