// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <shardkit/backend/host/copy_elements.hpp>
#include <shardkit/backend/host/lanes.hpp>
#include <shardkit/backend/host/summands.hpp>
#include <shardkit/backend/host/target.hpp>
#include <shardkit/core/bf16.hpp>

// Sums of bf16 with the rounding instruction of AVX-512: registers of 64 bytes, and a third of the instructions of
// sums.inc. Chosen at run time, even where the translation unit is compiled for such a processor. The instructions
// are in assembly, as compilers name their builtins differently.

namespace shardkit::host::detail SHARDKIT_HOST_TARGET::avx512 {

#if defined(__x86_64__)

#if defined(__clang__)
#define SHARDKIT_TARGET_CODE [[gnu::target("avx512bw,avx512dq,avx512bf16")]]
#else
#pragma GCC push_options
#pragma GCC target("avx512bw,avx512dq,avx512bf16")
#define SHARDKIT_TARGET_CODE
#endif

using Words = Vector<std::uint32_t, 16>;
using Floats = Vector<float, 16>;

/// Sums at 32 places: those at even places in one register, at odd places in the other, as in SumPair<float, bf16,
/// bf16>. They are added by multiplying with one: some of the units that add are busy with widening.
struct Bf16Sums {
    static constexpr std::size_t count = 32;

    Floats even;
    Floats odd;

    SHARDKIT_TARGET_CODE explicit Bf16Sums(const bf16* first) {
        Words words;
        std::memcpy(&words, first, sizeof words);
        const Words low = words << 16;
        const Words high = words & 0xffff0000;
        std::memcpy(&even, &low, sizeof even);
        std::memcpy(&odd, &high, sizeof odd);
    }
    SHARDKIT_TARGET_CODE void add(const bf16* next) { add(Bf16Sums(next)); }
    SHARDKIT_TARGET_CODE void add(const Bf16Sums& addend) {
        Floats one{};  // in two steps for the reason in sum_bf16
        one += 1.0F;
        asm("vfmadd231ps {%2, %1, %0|%0, %1, %2}" : "+v"(even) : "v"(addend.even), "v"(one));
        asm("vfmadd231ps {%2, %1, %0|%0, %1, %2}" : "+v"(odd) : "v"(addend.odd), "v"(one));
    }
};

/// Returns whether one of the two registers has a zero.
SHARDKIT_TARGET_CODE inline bool any_zero(const Words& a, const Words& b, const Words& magnitude) {
    std::uint32_t of_a;
    std::uint32_t of_b;
    asm("vptestnmw {%2, %1, %0|%0, %1, %2}" : "=Yk"(of_a) : "v"(a), "v"(magnitude));
    asm("vptestnmw {%2, %1, %0|%0, %1, %2}" : "=Yk"(of_b) : "v"(b), "v"(magnitude));
    asm("kord {%1, %0, %0|%0, %0, %1}" : "+Yk"(of_a) : "Yk"(of_b));
    return of_a != 0;
}

/// Returns a mask of the lanes that are subnormal in one of the two registers.
SHARDKIT_TARGET_CODE inline std::uint16_t subnormal(const Bf16Sums& sums) {
    std::uint16_t even;
    std::uint16_t odd;
    asm("vfpclassps {$0x20, %1, %0|%0, %1, 0x20}" : "=Yk"(even) : "v"(sums.even));
    asm("vfpclassps {$0x20, %1, %0|%0, %1, 0x20}" : "=Yk"(odd) : "v"(sums.odd));
    asm("korw {%1, %0, %0|%0, %0, %1}" : "+Yk"(even) : "Yk"(odd));
    return even;
}

/// Rounds to nearest, ties to even, with the instruction, which treats subnormal values as zero. It puts the
/// registers' values one behind the other; `order` moves them to their places.
SHARDKIT_TARGET_CODE inline void round(const Bf16Sums& sums, const Words& order, Words& rounded) {
    asm("vcvtne2ps2bf16 {%2, %1, %0|%0, %1, %2}" : "=v"(rounded) : "v"(sums.odd), "v"(sums.even));
    asm("vpermw {%0, %1, %0|%0, %1, %0}" : "+v"(rounded) : "v"(order));
}

/// Rounds the same with integer operations, for all values.
SHARDKIT_TARGET_CODE inline void round_any(const Bf16Sums& sums, Words& rounded) {
    Words even;
    Words odd;
    std::memcpy(&even, &sums.even, sizeof even);
    std::memcpy(&odd, &sums.odd, sizeof odd);
    even += 0x7fff + ((even >> 16) & 1);
    odd += 0x7fff + ((odd >> 16) & 1);
    rounded = even >> 16 | (odd & 0xffff0000);
}

SHARDKIT_TARGET_CODE inline void stream(const Words& words, bf16* target) {
    asm volatile("vmovntdq {%1, %0|%0, %1}" : "=m"(*static_cast<Words*>(static_cast<void*>(target))) : "v"(words));
}

/// Adds up like sum_lanes.
template <std::size_t Tree>
SHARDKIT_TARGET_CODE [[gnu::noinline, gnu::flatten]] void sum_bf16(const Operands& operands, std::size_t begin,
                                                                   std::size_t end) {
    constexpr std::size_t count = Bf16Sums::count;
    static_assert(summed_elements<float> % (2 * count) == 0);
    alignas(64) static constexpr std::uint16_t places[count] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                                21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                                11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    Words order;
    std::memcpy(&order, places, sizeof order);
    Words magnitude{};  // nvcc 13.0's front end crashes on Words{} + 0x7fff7fff
    magnitude += 0x7fff7fff;
    Addition<Tree, Bf16Sums, bf16> addition(operands);
    for (std::size_t i = begin; i < end; i += 2 * count) {
        if ((i - begin) % bundle_block == 0) { addition.begin_block(i, std::min(bundle_block, end - i)); }
        const bf16* const first = addition.first(i);
        Bf16Sums a(first);
        Bf16Sums b(first + count);
        addition.add_to(i, a, b);
        Words rounded_a;
        Words rounded_b;
        round(a, order, rounded_a);
        round(b, order, rounded_b);
        // Subnormal values, which the instruction treats as zero, become zeros.
        if (any_zero(rounded_a, rounded_b, magnitude) && (subnormal(a) | subnormal(b)) != 0) [[unlikely]] {
            round_any(a, rounded_a);
            round_any(b, rounded_b);
        }
        std::size_t r = 0;
        do {
            const Result<bf16> result = operands.result<bf16>(r);
            bf16* const place = result.data + i;
            if (result.store == Store::streaming) {
                stream(rounded_a, place);
                stream(rounded_b, place + count);
            } else {
                std::memcpy(static_cast<void*>(place), &rounded_a, sizeof rounded_a);
                std::memcpy(static_cast<void*>(place + count), &rounded_b, sizeof rounded_b);
            }
        } while (++r < operands.results);
    }
}

#undef SHARDKIT_TARGET_CODE
#if !defined(__clang__)
#pragma GCC pop_options
#endif

/// Returns whether this processor can run sum_bf16.
inline bool use() noexcept {
    static const bool supported = __builtin_cpu_supports("avx512bw") != 0 &&
                                  __builtin_cpu_supports("avx512dq") != 0 &&
                                  __builtin_cpu_supports("avx512bf16") != 0;
    return supported;
}

#else

constexpr bool use() noexcept { return false; }
template <std::size_t Tree>
void sum_bf16(const Operands&, std::size_t, std::size_t) noexcept {}

#endif

}  // namespace shardkit::host::detail SHARDKIT_HOST_TARGET::avx512
