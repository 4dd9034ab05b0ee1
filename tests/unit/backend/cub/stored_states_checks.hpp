// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <shardkit/comm/stream.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/core/block8.hpp>
#include <shardkit/core/split_float.hpp>
#include <shardkit/kernels/state_storage.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/lion.hpp>

#include "../host/enqueued_kernels.hpp"
#include "each_precision.hpp"
#include "machine.hpp"

// Updates whose states are bf16 or blocks of 8 bits: the kernels' bits against the functor, one element at a time.

namespace shardkit::test {

/// The states of some elements in memory, read and written one number at a time.
template <class Storage, std::size_t States>
struct StoredStates {
    static constexpr bool coded = Storage::format == StateFormat::block8;
    using Element = std::conditional_t<coded, std::uint8_t, bf16>;
    std::array<std::vector<Element>, States> elements;
    std::array<std::vector<float>, States> scales;

    explicit StoredStates(std::size_t count) {
        for (std::size_t s = 0; s < States; ++s) {
            const auto numbers = Storage::is_square(s) ? random_squares<float>(count, 3 + static_cast<unsigned>(s))
                                                       : random_elements<float>(count, 3 + static_cast<unsigned>(s));
            elements[s].resize(count);
            scales[s].resize(Block8::blocks(count));
            write(s, numbers, std::vector<std::uint32_t>(count, 0x8000'0000), {0, count});
        }
    }
    std::vector<float> read(std::size_t s) const {
        std::vector<float> numbers;
        for (std::size_t i = 0; i < elements[s].size(); ++i) {
            if constexpr (coded) {
                const std::uint32_t code = elements[s][i];
                const float scale = scales[s][i / Block8::block];
                numbers.push_back(Storage::is_square(s) ? Block8::decode<true>(code, scale)
                                                        : Block8::decode<false>(code, scale));
            } else {
                numbers.push_back(static_cast<float>(elements[s][i]));
            }
        }
        return numbers;
    }
    /// `drawn`: for each element's pair of states.
    void write(std::size_t s, const std::vector<float>& numbers, const std::vector<std::uint32_t>& drawn,
               IndexRange range) {
        const auto own = [&](std::size_t i, std::uint32_t bits) {
            return s % 2 == 0 ? drawn[i] & ((1U << bits) - 1) : drawn[i] >> (32 - bits);
        };
        if constexpr (!coded) {
            for (std::size_t i = range.begin; i < range.end; ++i) {
                elements[s][i] = rules::round_stochastically<bf16>(numbers[i], own(i, 16));
            }
        } else {
            for (std::size_t begin = range.begin; begin < range.end; begin += Block8::block) {
                const std::size_t end = std::min(begin + Block8::block, range.end);
                float largest = 0;
                for (std::size_t i = begin; i < end; ++i) { largest = std::max(largest, std::fabs(numbers[i])); }
                const float scale = Block8::scale(largest);
                scales[s][begin / Block8::block] = scale;
                for (std::size_t i = begin; i < end; ++i) {
                    const float inverse = 1 / scale;
                    elements[s][i] = static_cast<std::uint8_t>(
                        Storage::is_square(s) ? Block8::encode<true>(numbers[i], inverse, own(i, 18))
                                              : Block8::encode<false>(numbers[i], inverse, own(i, 19)));
                }
            }
        }
    }
};

/// Ranges that begin where blocks do, with gaps, and end anywhere.
inline std::vector<rules::UpdateRange> block_ranges(std::size_t count) {
    std::vector<rules::UpdateRange> ranges;
    std::size_t at = 0;
    for (std::uint32_t n = 0; at < count; ++n) {
        const std::size_t end = std::min(count, at + 7 + n * 29);
        ranges.push_back({at, end, n % 3, (std::uint64_t{1} << 32U) - 40 + at});  // over 2^32
        at = (end + Block8::block - 1) / Block8::block * Block8::block + n % 2 * Block8::block;
    }
    return ranges;
}

/// `split`: whether masters are halves of fp32 numbers.
template <class Rule, StateFormat Format, class Master, class Gather, class M>
void check_stored_states(M& machine, const std::vector<typename Rule::template Update<float>>& updates,
                         std::size_t count, std::size_t offset, bool split = false) {
    constexpr std::size_t states = Rule::state_names.size();
    using Storage = typename rules::RuleIn<Rule, Format>::StateStorage;
    machine.clear();
    StoredStates<Storage, states> stored(count);
    auto master = random_elements<Master>(count, 1);
    auto gathered = random_elements<Gather>(count, 9);
    auto gradient = random_elements<float>(count, 2);
    const std::vector<rules::UpdateRange> ranges = block_ranges(count);
    const std::uint64_t seed = 0x1234'5678'9abc'def0U;
    const std::uint64_t step = 7;

    std::vector<std::uint16_t> rest(split ? count : 0);
    for (std::size_t i = 0; i < rest.size(); ++i) { rest[i] = static_cast<std::uint16_t>(i * 40503); }
    const auto rest_there = array(machine, rest, offset);
    const auto master_there = array(machine, master, offset);
    const auto gathered_there = array(machine, gathered, offset);
    const auto gradient_there = array(machine, gradient, offset);
    const auto ranges_there = array(machine, ranges);
    const auto updates_there = array(machine, updates);
    const auto skip_there = array(machine, std::vector<std::uint32_t>{0});
    const auto step_there = array(machine, std::vector<std::uint64_t>{step});
    rules::UpdateSpans<Master, Gather, float, states, Storage> spans{
        master_there.span(), gathered_there.span(), gradient_there.view(), {}, {}, {seed, step_there.data()}};
    std::vector<Array<typename StoredStates<Storage, states>::Element, M>> elements_there;
    std::vector<Array<float, M>> scales_there;
    for (std::size_t s = 0; s < states; ++s) {
        elements_there.push_back(array(machine, stored.elements[s], offset));
        scales_there.push_back(array(machine, stored.scales[s], offset));
        if constexpr (Format == StateFormat::block8) {
            spans.states[s] = {elements_there[s].span(), scales_there[s].span()};
        } else {
            spans.states[s] = elements_there[s].span();
        }
    }
    if (split) { spans.rest = rest_there.span(); }
    // The master is then what is gathered.
    constexpr bool gathers_master = std::is_same_v<Master, Gather>;
    if constexpr (gathers_master) { spans.gathered = {}; }
    M::Kernels::update(machine.stream(), ranges_there.view(), updates_there.data(), skip_there.data(), spans);

    std::array<std::vector<float>, states> numbers;
    std::array<std::vector<std::uint32_t>, states> draws;
    for (std::size_t s = 0; s < states; ++s) {
        numbers[s] = stored.read(s);
        draws[s].resize(count);
    }
    for (const rules::UpdateRange& range : ranges) {
        for (std::size_t i = range.begin; i < range.end; ++i) {
            auto parameter = static_cast<float>(master[i]);
            if (split) {
                if constexpr (sizeof(Master) == 2) {
                    parameter = detail::SplitFloat::joined(std::bit_cast<std::uint16_t>(master[i]), rest[i]);
                }
            }
            [&]<std::size_t... S>(std::index_sequence<S...>) {
                updates[range.update](parameter, numbers[S][i]..., gradient[i]);
            }
            (std::make_index_sequence<states>{});
            master[i] = static_cast<Master>(parameter);
            if constexpr (sizeof(Master) == 2) {
                if (split) {
                    master[i] = std::bit_cast<Master>(detail::SplitFloat::upper(parameter));
                    rest[i] = detail::SplitFloat::lower(parameter);
                }
            }
            if (!split && !gathers_master) { gathered[i] = static_cast<Gather>(static_cast<float>(master[i])); }
            for (std::size_t s = 0; s < states; ++s) {
                const std::uint64_t number = range.element + i - range.begin;
                draws[s][i] = detail::StateDraws(seed, step, static_cast<std::uint32_t>(s / 2))(number);
            }
        }
        for (std::size_t s = 0; s < states; ++s) { stored.write(s, numbers[s], draws[s], {range.begin, range.end}); }
    }
    CHECK(same_bits(master_there.values(), master));
    CHECK(same_bits(rest_there.values(), rest));
    CHECK(same_bits(gathered_there.values(), gathered));
    for (std::size_t s = 0; s < states; ++s) {
        CHECK(same_bits(elements_there[s].values(), stored.elements[s]));
        CHECK(same_bits(scales_there[s].values(), stored.scales[s]));
    }
}

template <class M>
void check_stored_states(M& machine) {
    const AdamWOptions adamw{.learning_rate = 0.1};
    const std::vector<rules::AdamWUpdate<float>> of_adamw{rules::adamw_update<float>(adamw, 0.9, 0.999, 0.5),
                                                          rules::adamw_update<float>(adamw, 0.8, 0.99, 1),
                                                          rules::adamw_update<float>(adamw, 0.5, 0.9, -2)};
    std::vector<rules::AmsgradUpdate<float>> of_amsgrad;
    for (const auto& update : of_adamw) { of_amsgrad.push_back({update}); }
    const LionOptions lion{.learning_rate = 0.1};
    const std::vector<rules::LionUpdate<float>> of_lion(3, rules::lion_update<float>(lion, 0.5));
    constexpr StateFormat as_bf16 = StateFormat::bf16;
    constexpr StateFormat as_block8 = StateFormat::block8;
    for (const std::size_t count : std::vector<std::size_t>{0, 1, 31, 32, 33, 700}) {
        for (const std::size_t offset : std::vector<std::size_t>{0, 1}) {
            CAPTURE(count);
            CAPTURE(offset);
            check_stored_states<rules::AdamWRule, as_bf16, float, shardkit::bf16>(machine, of_adamw, count, offset);
            check_stored_states<rules::AdamWRule, as_block8, float, shardkit::bf16>(machine, of_adamw, count, offset);
            check_stored_states<rules::AdamWRule, as_block8, shardkit::bf16, float>(machine, of_adamw, count, offset);
            check_stored_states<rules::AmsgradRule, as_block8, float, float>(machine, of_amsgrad, count, offset);
            check_stored_states<rules::LionRule, as_bf16, float, float>(machine, of_lion, count, offset);
            using Half = shardkit::bf16;
            check_stored_states<rules::AdamWRule, as_bf16, Half, Half>(machine, of_adamw, count, offset, true);
            check_stored_states<rules::AdamWRule, as_block8, Half, Half>(machine, of_adamw, count, offset, true);
        }
    }
}

}  // namespace shardkit::test
