// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include <shardkit/core/codes.hpp>
#include <shardkit/kernels/state_storage.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/sgd.hpp>

#include "each_precision.hpp"
#include "machine.hpp"
#include "stored_states_checks.hpp"

// Updates of masters whose codes are gathered: the masters of the same update without codes, and what the masters say
// of the codes, of elements that no range updates and of a skipped step too.

namespace shardkit::test {

template <class Code, class Rule, StateFormat Format, class Master, class M>
void check_coded_update(M& machine, const typename Rule::template Update<Arithmetic<Master>>& update,
                        std::size_t count, std::size_t offset, std::uint32_t skip, Master planted) {
    constexpr std::size_t states = Rule::state_names.size();
    using Storage = typename detail::StorageOf<rules::RuleIn<Rule, Format>>::type;
    using A = Arithmetic<Master>;
    constexpr std::size_t block = 64;
    machine.clear();
    auto master = random_elements<Master>(count, 1);
    if (count > 70) { master[70] = planted; }
    const auto gradient = random_elements<float>(count, 2);
    const std::vector<rules::UpdateRange> ranges = block_ranges(count);
    const std::vector<typename Rule::template Update<A>> updates(3, update);
    const auto ranges_there = array(machine, ranges);
    const auto updates_there = array(machine, updates);
    const auto skip_there = array(machine, std::vector<std::uint32_t>{skip});
    const auto step_there = array(machine, std::vector<std::uint64_t>{7});
    const auto gradient_there = array(machine, gradient, offset);
    const auto codes_there = array(machine, std::vector<Code>(count + 8), offset);
    const auto scales_there = array(machine, std::vector<float>((count + block - 1) / block));
    const auto run = [&](auto gathered, const auto& masters) {
        using Gather = typename decltype(gathered)::value_type;
        rules::UpdateSpans<Master, Gather, float, states, Storage> spans{
            masters.span(), gathered, gradient_there.view(), {}, {}, {5, step_there.data()}};
        spans.scales = scales_there.span();
        if constexpr (Format == StateFormat::full) {
            std::vector<Array<A, M>> memory;
            for (auto& state : spans.states) {
                memory.push_back(array(machine, random_squares<A>(count, 3), offset));
                state = memory.back().span();
            }
            M::Kernels::update(machine.stream(), ranges_there.view(), updates_there.data(), skip_there.data(), spans);
        } else {
            using Element = typename StoredStates<Storage, states>::Element;
            const StoredStates<Storage, states> stored(count);
            std::vector<Array<Element, M>> memory;
            std::vector<Array<float, M>> scales;
            for (std::size_t s = 0; s < states; ++s) {
                memory.push_back(array(machine, stored.elements[s], offset));
                scales.push_back(array(machine, stored.scales[s]));
                spans.states[s] = {memory[s].span(), scales[s].span()};
            }
            M::Kernels::update(machine.stream(), ranges_there.view(), updates_there.data(), skip_there.data(), spans);
        }
    };
    const auto alone_there = array(machine, master, offset);
    run(std::span<Master>{}, alone_there);
    const auto master_there = array(machine, master, offset);
    run(codes_there.span().first(count), master_there);
    master = alone_there.values();
    CHECK(same_bits(master_there.values(), master));

    const std::vector<Code> codes = codes_there.values();
    const std::vector<float> scales = scales_there.values();
    std::size_t wrong = 0;
    for (std::size_t begin = 0; begin < count; begin += block) {
        const std::size_t end = std::min(begin + block, count);
        float largest = 0;
        for (std::size_t i = begin; i < end; ++i) {
            const float magnitude = std::abs(static_cast<float>(master[i]));
            largest = std::isnan(largest) || magnitude <= largest ? largest : magnitude;
        }
        float found = 0;
        if constexpr (std::is_same_v<Code, e4m3>) {
            std::memcpy(&found, codes.data() + begin, sizeof found);
            wrong += std::isnan(largest) ? (std::isnan(found) ? 0U : 1U) : (found == largest ? 0U : 1U);
        } else {
            found = scales[begin / block];
            const bool bad = !std::isfinite(largest);
            wrong += bad ? (std::isnan(found) ? 0U : 1U) : (found == largest / 127 ? 0U : 1U);
            for (std::size_t i = begin; i < end; ++i) {
                wrong += codes[i] == shardkit::detail::CodeFormat<Code>::encode(static_cast<float>(master[i]), found)
                             ? 0U
                             : 1U;
            }
        }
    }
    CHECK(wrong == 0);
}

template <class M>
void check_coded_updates(M& machine) {
    const AdamWOptions options{.learning_rate = 0.1};
    const auto adamw = rules::adamw_update<float>(options, 0.9, 0.999, 0.5);
    const auto of_fp64 = rules::adamw_update<double>(options, 0.9, 0.999, 0.5);
    constexpr float infinite = std::numeric_limits<float>::infinity();
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    for (const std::size_t count : std::vector<std::size_t>{0, 1, 63, 64, 65, 700, 2500}) {
        for (const std::size_t offset : std::vector<std::size_t>{0, 1}) {
            for (const std::uint32_t skip : {0U, 1U}) {
                CAPTURE(count);
                CAPTURE(offset);
                CAPTURE(skip);
                using enum StateFormat;
                check_coded_update<e4m3, rules::AdamWRule, full, float>(machine, adamw, count, offset, skip,
                                                                        infinite);
                check_coded_update<e4m3, rules::AdamWRule, block8, float>(machine, adamw, count, offset, skip, -3.0F);
                check_coded_update<block_int8, rules::AdamWRule, full, float>(machine, adamw, count, offset, skip,
                                                                              nan);
                check_coded_update<block_int8, rules::AdamWRule, block8, float>(machine, adamw, count, offset, skip,
                                                                                9.0F);
                check_coded_update<block_int8, rules::AdamWRule, full, double>(machine, of_fp64, count, offset, skip,
                                                                               9.0);
            }
        }
    }
}

}  // namespace shardkit::test
