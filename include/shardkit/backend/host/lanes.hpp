// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <shardkit/backend/host/summands.hpp>
#include <shardkit/backend/host/target.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/lane_math.hpp>
#include <shardkit/kernels/state_storage.hpp>

// Loops on short vectors, compiled once per instruction set from the same source:
//   lanes.inc      Lanes<A>: one register of values, with arithmetic and comparisons
//   lanes_io.inc   load, Stored, store: registers from and to elements of any type
//   loops.inc      run_lanes, pack_sums, add_near: the loops that for_each_lanes.hpp chooses from
//   sums.inc       sum_lanes: the loop of rank_order_reduction
//   states.inc     run_state_blocks: the loop of updates whose states are bf16 or blocks of 8 bits
// Namespace `compiled` uses the instructions that the translation unit is compiled for. On x86 without AVX2, F16C and
// FMA there is also `avx2`, chosen at run time: square roots and divisions take half the time, and fp16 is converted
// by instructions (F16C). It fuses only multiplications by one into additions, so both give the same bits. Only the
// faster of the two has sum_lanes: processors before AVX2 add up block after block. For states that are not stored as
// they are computed with there is `wide`, on registers of 64 bytes: coding takes more of the processor than of
// memory. It is there where the unit is compiled for AVX-512, and at run time where `avx2` is, by GCC alone: AVX-512
// brings fused multiplications and additions, and no option of a region keeps clang from them in a user's rule. Nor
// is it there with -ffinite-math-only, where GCC divides by approximations of unlike bits. Some instructions are in
// assembly: <immintrin.h> would take a fifth of the whole umbrella's compile time, and the builtins behind it are the
// compilers' own, which clang 22 has not all that clang 14 had.

namespace shardkit::host::detail {

/// The compiler's vector type behind Vector.
template <class T, std::size_t Count>
struct VectorOf {
    // NOLINTNEXTLINE(modernize-use-using): clang 14 takes the attribute of a dependent type here only
    typedef T type __attribute__((vector_size(Count * sizeof(T))));
};

/// `Count` values of T: a short vector as GCC and clang define it.
template <class T, std::size_t Count>
using Vector = typename VectorOf<T, Count>::type;

/// T is one of the 16-bit floating-point types.
template <class T>
concept Half = std::same_as<T, bf16> || std::same_as<T, fp16>;

/// `Count` elements of any type as they are in memory; a register for the processor's own types and 16-bit types.
template <class T, std::size_t Count>
struct StoredOf {
    using type = std::array<T, Count>;
};
template <std::floating_point T, std::size_t Count>
struct StoredOf<T, Count> : VectorOf<T, Count> {};
template <Half T, std::size_t Count>
struct StoredOf<T, Count> : VectorOf<std::uint16_t, Count> {};

/// The bytes of the widest register that loops use, but for states in blocks. Not 64, even if the machine has it: the
/// loops wait for memory, and several machines reduce their clock for it.
inline constexpr std::size_t widest_register = 32;

/// The number of elements of a pack: 128 bytes. It is fixed, so that the order of additions does not depend on the
/// width of the machine's registers.
template <FloatingElement T>
inline constexpr std::size_t pack_elements = 128 / sizeof(T);

/// Where one state lies that is not stored as it is computed with.
template <class Storage>
struct StatePointers {
    static constexpr bool coded = Storage::format == StateFormat::block8;
    using Element = std::conditional_t<coded, std::uint8_t, bf16>;

    Element* elements;
    float* scales;  ///< one for each block, where elements are codes
};
template <class Storage, class Span>
StatePointers<Storage> state_pointers(const Span& state) noexcept {
    if constexpr (StatePointers<Storage>::coded) {
        return {state.codes.data(), state.scales.data()};
    } else {
        return {state.data(), nullptr};
    }
}
/// The states of an update, and what decides their rounding.
template <class Storage, std::size_t Count>
struct StateStreams {
    std::array<StatePointers<Storage>, Count> pointers;
    std::array<shardkit::detail::StateDraws, (Count + 1) / 2> draws;
    std::uint64_t element;  ///< the number of the first one
};

inline constexpr std::size_t near_sums = 128;
/// The sum of `near_sums` numbers as an integer: a number with exponent lowest + shift counts as its fraction times
/// 2^shift. In each lane the lower 26 bits of fractions are added apart from the upper 27, so that 64 bits hold them.
struct NearSum {
    static constexpr std::uint64_t range = 32;  ///< of shifts, beyond which the integer is wrong

    std::uint64_t low = 0;
    std::uint64_t high = 0;
    std::uint64_t shifts = 0;  ///< has the bits of all shifts: below `range` if they are

    void add(std::uint64_t lower, std::uint64_t upper) {
        low += lower;
        high += upper + (low < lower ? 1 : 0);
    }
};

/// The number of sums in A that sum_lanes adds up before it writes them: 8 of the widest registers.
template <std::floating_point A>
inline constexpr std::size_t summed_elements = 8 * widest_register / sizeof(A);

}  // namespace shardkit::host::detail

#if defined(SHARDKIT_HOST_V3)
#define SHARDKIT_TARGET_BYTES 32
#else
#define SHARDKIT_TARGET_BYTES 16
#endif
#define SHARDKIT_TARGET compiled
#define SHARDKIT_TARGET_CODE
#include <shardkit/backend/host/target_loops.inc>

#if defined(SHARDKIT_WIDE_AT_RUN_TIME)
#pragma GCC push_options
#pragma GCC target("avx512bw,avx512vl")
#define SHARDKIT_TARGET_CODE [[gnu::optimize("fp-contract=off")]]  // the bits of the other loops
#elif defined(__AVX512F__)
#define SHARDKIT_TARGET_CODE
#endif
#if defined(SHARDKIT_TARGET_CODE)
#define SHARDKIT_TARGET_BYTES 64
#define SHARDKIT_TARGET wide
#include <shardkit/backend/host/target_loops.inc>
#endif
#if defined(SHARDKIT_WIDE_AT_RUN_TIME)
#pragma GCC pop_options
#endif

namespace shardkit::host::detail SHARDKIT_HOST_TARGET {
#if defined(SHARDKIT_WIDE_AT_RUN_TIME)
/// Returns whether this processor can run the loops on registers of 64 bytes. VBMI, which no loop needs, leaves out
/// those before Ice Lake, which reduce their clock for all that runs behind such a loop.
inline bool use_wide() noexcept {
    static const bool supported = __builtin_cpu_supports("avx512bw") != 0 &&
                                  __builtin_cpu_supports("avx512vl") != 0 &&
                                  __builtin_cpu_supports("avx512vbmi") != 0;
    return supported;
}
#elif defined(__AVX512F__)
constexpr bool use_wide() noexcept { return true; }
#else
namespace wide = compiled;
constexpr bool use_wide() noexcept { return false; }
#endif
}  // namespace shardkit::host::detail SHARDKIT_HOST_TARGET

#if defined(__x86_64__) && !defined(SHARDKIT_HOST_V3)
// GCC splits long vectors in functions that may not use long registers before it inlines, so there every function of
// the region needs the target. clang splits them last, and inlines better without it.
#if !defined(__clang__)
#pragma GCC push_options
#pragma GCC target("avx2,f16c")
#endif
#define SHARDKIT_TARGET_BYTES 32
#define SHARDKIT_TARGET avx2
#define SHARDKIT_TARGET_CODE [[gnu::target("avx2,f16c")]]
#include <shardkit/backend/host/target_loops.inc>
#if !defined(__clang__)
#pragma GCC pop_options
#endif

namespace shardkit::host::detail SHARDKIT_HOST_TARGET {
/// Returns whether this processor can run the loops for AVX2, F16C and FMA. clang's builtin does not know F16C.
inline bool use_avx2() noexcept {
    static const bool supported = [] {
        unsigned int eax = 0;
        unsigned int ebx = 0;
        unsigned int ecx = 0;
        unsigned int edx = 0;
        return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
               __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
    }();
    return supported;
}
/// Returns whether this processor can run avx2::sum_lanes.
inline bool sums_in_lanes() noexcept { return use_avx2(); }
}  // namespace shardkit::host::detail SHARDKIT_HOST_TARGET
#else
namespace shardkit::host::detail SHARDKIT_HOST_TARGET {
namespace avx2 = compiled;
constexpr bool use_avx2() noexcept { return false; }
constexpr bool sums_in_lanes() noexcept { return true; }
}  // namespace shardkit::host::detail SHARDKIT_HOST_TARGET
#endif
