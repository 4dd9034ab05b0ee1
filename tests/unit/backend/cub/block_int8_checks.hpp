// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include <shardkit/quantize/quantize.hpp>

#include "each_precision.hpp"
#include "machine.hpp"

namespace shardkit::test {

template <class T, std::size_t Block, class M>
void check_block_int8_of(M& machine, const std::vector<T>& values, const Offsets& at) {
    machine.clear();
    const std::size_t size = values.size();
    const std::size_t blocks = BlockInt8<Block>::blocks(size);
    std::vector<std::int8_t> codes(size);
    std::vector<float> scales(blocks);
    std::vector<T> decoded(size);
    quantize<Block>(std::span<const T>(values), std::span(codes), std::span(scales));
    dequantize<Block>(std::span<const std::int8_t>(codes), std::span<const float>(scales), std::span(decoded));

    const auto from = array(machine, values, at[0]);
    const auto codes_there = array(machine, std::vector<std::int8_t>(size), at[1]);
    const auto scales_there = array(machine, std::vector<float>(blocks), at[2]);
    const auto to = array(machine, std::vector<T>(size), at[3]);
    M::Kernels::template quantize<Block>(machine.stream(), from.view(), codes_there.span(), scales_there.span());
    CHECK(codes_there.values() == codes);
    const std::vector<float> scales_got = scales_there.values();
    for (std::size_t b = 0; b < blocks; ++b) {
        CHECK((scales_got[b] == scales[b] || (scales_got[b] != scales_got[b] && scales[b] != scales[b])));
    }
    M::Kernels::template dequantize<Block>(machine.stream(), codes_there.view(), scales_there.view(), to.span());
    const std::vector<T> got = to.values();
    for (std::size_t i = 0; i < size; ++i) {
        CHECK((got[i] == decoded[i] || (got[i] != got[i] && decoded[i] != decoded[i])));
    }
}

template <class T, std::size_t Block, class M>
void check_block_int8_type(M& machine) {
    for (const std::size_t size : sizes()) {
        for (const Offsets& at : offsets()) {
            check_block_int8_of<T, Block>(machine, random_elements<T>(size, 12), at);
        }
    }
    std::vector<T> hard = random_elements<T>(5 * Block, 13);
    hard[3] = rounded<T>(std::numeric_limits<double>::infinity());
    hard[Block + 1] = rounded<T>(std::numeric_limits<double>::quiet_NaN());
    for (std::size_t i = 2 * Block; i < 3 * Block; ++i) { hard[i] = T{}; }
    for (std::size_t i = 3 * Block; i < 4 * Block; ++i) { hard[i] = rounded<T>(i % 2 == 0 ? 1e-44 : -1e-41); }
    check_block_int8_of<T, Block>(machine, hard, {{0}});
}

template <class M>
void check_block_int8(M& machine) {
    SUBCASE("every size and start") {
        each_floating([&]<class T>(Type<T>) {
            check_block_int8_type<T, 64>(machine);
            check_block_int8_type<T, 256>(machine);
        });
    }
    SUBCASE("sizes that disagree") {
        machine.clear();
        const auto from = array(machine, std::vector<float>(65));
        const auto codes = array(machine, std::vector<std::int8_t>(65));
        const auto scales = array(machine, std::vector<float>(3));
        CHECK_THROWS_WITH_AS(M::Kernels::template quantize<64>(machine.stream(), from.view(), codes.span(),
                                                               scales.span(), SourceLocation{"user.cpp", 7}),
                             "gpu::Kernels::quantize: scales has 3 elements, expected 2 (user.cpp:7)",
                             std::invalid_argument);
        CHECK_THROWS_WITH_AS(
            M::Kernels::template dequantize<64>(machine.stream(), codes.view().first(64), scales.view().first(1),
                                                from.span(), SourceLocation{"user.cpp", 7}),
            "gpu::Kernels::dequantize: to has 65 elements, expected 64 (user.cpp:7)", std::invalid_argument);
    }
}

}  // namespace shardkit::test
